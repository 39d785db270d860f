// Starts Debian's Chromium with an empty profile, and refuses every request that leaves this machine.
import { createRequire } from "node:module";
import path from "node:path";

// The packages are in a cache, not beside this file.
const require = createRequire(path.resolve(process.env.RALPH_BROWSER_CACHE ?? "target/browser", "x.js"));
const { chromium } = require("playwright-core");
export const axePath = require.resolve("axe-core/axe.min.js");

export const CHROMIUM = process.env.RALPH_CHROMIUM ?? "/usr/bin/chromium";

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

export async function launch() {
  return chromium.launch({ executablePath: CHROMIUM, headless: true, args: ARGS });
}

// 22:41 on the evening of the sample.
export const NOW = 1_794_868_860_000;

export const PHONE = { width: 390, height: 844 };
export const DESKTOP = { width: 1280, height: 900 };

// A browser of its own: no cookies are shared with another one. `foreign` collects requests to other servers.
export async function open(browser, origin, options = {}) {
  const { viewport = DESKTOP, theme = "light", javaScript = true } = options;
  const context = await browser.newContext({
    viewport, colorScheme: theme, javaScriptEnabled: javaScript, bypassCSP: options.bypassCSP ?? false,
    hasTouch: viewport === PHONE, locale: "en-GB", timezoneId: "UTC",
  });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  page.foreign = [];
  page.problems = [];
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin + "/") && !url.startsWith("data:")) page.foreign.push(url);
  });
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/ERR_(CONNECTION|INCOMPLETE|EMPTY)/.test(message.text())) page.problems.push(message.text());
  });
  return page;
}
