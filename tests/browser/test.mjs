// Drives `ralph serve` in Chromium. Usage: test.mjs FILE, with a JSON description of what tests/serve/browser.rs prepared:
// ralph, environment, directories, and the sample evening's server.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { DESKTOP, NOW, PHONE, axePath, launch, open } from "./browser.mjs";

const setup = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const browser = await launch();
const started = [];

// Starts ralph, and resolves once its output has `mark`.
function ralph(args, mark, cwd = setup.directory) {
  const child = spawn(setup.ralph, args, { cwd, env: setup.env, stdio: ["ignore", "pipe", "pipe"] });
  started.push(child);
  child.text = "";
  const ready = new Promise((resolve, reject) => {
    const look = (data) => { child.text += data; if (mark && child.text.includes(mark)) resolve(child); };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("exit", (code) => (mark ? reject(new Error(`ralph ${args.join(" ")} ended with ${code}:\n${child.text}`)) : resolve(child)));
  });
  child.ended = new Promise((resolve) => child.on("exit", resolve));
  return ready;
}

async function serve(port, ...args) {
  const child = await ralph(["serve", "--port", String(port), ...args], "Ctrl+C");
  const [full, readOnly] = [...child.text.matchAll(/http:\S+/g)].map((match) => match[0]);
  return { child, full, readOnly, origin: new URL(full).origin, port: Number(new URL(full).port) };
}

async function stop(child) { child.kill("SIGINT"); await child.ended; }

// A loop whose agent does what the script says. Files let it go on.
function loop(name, script) {
  const file = `${setup.scratch}/${name}.json`;
  fs.writeFileSync(file, JSON.stringify(script));
  const args = ["run", "--name", name, "-n", "3", "-p", "do it <response>DONE</response>", "--", setup.agent, "--script", file];
  // Each in a project of its own: one project has one loop at a time.
  const project = `${setup.scratch}/${name}`;
  fs.mkdirSync(project);
  return ralph(args, "Iteration", project);
}
const goFile = (name) => `${setup.scratch}/go-${name}`;
const go = (name) => fs.writeFileSync(goFile(name), "");
const waitHere = (name) => ({ wait_for: goFile(name) });

const live = (page) => page.locator("#live[data-state=live]").waitFor();
const clean = (page) => { assert.deepEqual(page.foreign, []); assert.deepEqual(page.problems, []); };
const rowOf = (page, name) => page.locator(".row", { hasText: name });

// A page without a script does not change by itself.
async function reloadUntil(page, text) {
  const deadline = Date.now() + 10_000;
  while ((await page.getByText(text).count()) === 0) {
    assert.ok(Date.now() < deadline, `the page never shows ${text}`);
    await page.reload();
  }
}

async function test(name, run) {
  const start = Date.now();
  try { await run(); } catch (error) {
    console.error(`FAILED ${name}: ${error.stack}`);
    process.exitCode = 1;
  }
  console.log(`${name}: ${Date.now() - start} ms`);
}

const server = await serve(0);
const { origin } = server;

await test("follow a live run, tell, pause, resume, stop", async () => {
  const page = await open(browser, origin);
  await page.goto(server.full);
  assert.equal(page.url(), origin + "/", "the token leaves the address bar");
  await live(page);
  await page.getByText("No runs on this machine yet").waitFor();
  const run = await loop("alpha", [
    { print: "first words" }, waitHere("one"), { print: "second words" }, waitHere("two"),
  ]);
  // It turns up by itself.
  await rowOf(page, "alpha").waitFor();
  await rowOf(page, "alpha").locator("a").click();
  await live(page);
  await page.getByText("first words").waitFor();
  go("one");
  await page.getByText("second words").waitFor();

  await page.keyboard.press("i");
  assert.equal(await page.evaluate(() => document.activeElement.id), "tell");
  await page.keyboard.type("Keep the old template.");
  await page.keyboard.press("Enter");
  await page.locator(".you", { hasText: "Keep the old template." }).waitFor();
  await page.getByText("waits for the next iteration").first().waitFor();
  assert.equal(await page.locator("#tell").inputValue(), "");

  await page.locator("#b-pause").click();
  await page.getByText("pausing…").first().waitFor();
  go("two");
  await page.locator("#b-resume").waitFor();
  await page.getByText("delivered with").or(page.getByText("waits for the next iteration")).first().waitFor();
  fs.rmSync(goFile("two"));
  await page.keyboard.press("Escape");
  await page.keyboard.press("r");
  await page.locator("#i2").waitFor();
  await page.getByText("delivered with iteration 2").waitFor();

  await page.keyboard.press("x");
  await page.locator("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  await page.locator("#b-stop").click();
  await page.getByRole("button", { name: "End it now" }).click();
  await page.locator(".word", { hasText: "ended" }).waitFor();
  await run.ended;
  clean(page);
  await page.context().close();
});

await test("starts a run from the form", async () => {
  const page = await open(browser, origin, { viewport: PHONE });
  // Known by its first run.
  const project = `${setup.scratch}/alpha`;
  const script = `${setup.scratch}/started.json`;
  fs.writeFileSync(script, JSON.stringify([{ print: "words of the new run" }, waitHere("n1")]));
  fs.mkdirSync(`${project}/.ralph`, { recursive: true });
  fs.writeFileSync(`${project}/.ralph/settings.json`, JSON.stringify({ agent: { command: setup.agent, flags: ["--script", script] } }));
  await page.goto(server.full);
  await page.keyboard.press("n");
  await page.locator("#directory").selectOption(project);
  await page.locator("#prompt").fill("first line");
  await page.locator("#prompt").press("Enter");
  await page.keyboard.type("<response>DONE</response>");
  await page.getByLabel("Isolate the agent").uncheck();
  fs.renameSync(project, `${project}-away`);
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator(".told.bad", { hasText: "No run has ever worked in that directory" }).waitFor();
  fs.renameSync(`${project}-away`, project);
  assert.equal(await page.locator("#prompt").inputValue(), "first line\n<response>DONE</response>");
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await page.getByText("words of the new run").waitFor();
  await page.locator("#b-stop").click();
  await page.getByRole("button", { name: "End it now" }).click();
  await page.locator(".word", { hasText: "ended" }).waitFor();
  assert.deepEqual(page.foreign, []);
  await page.context().close();
});

await test("question is answered on the overview, in two browsers", async () => {
  const [one, two] = [await open(browser, origin, { viewport: PHONE }), await open(browser, origin)];
  for (const page of [one, two]) { await page.goto(server.full); await live(page); }
  const run = await loop("beta", [
    { print: "<question>Tabs or spaces?\nThe guide is silent.</question>" },
    { shell: `if [ -e ${setup.scratch}/b2 ]; then until [ -e ${goFile("beta")} ]; do sleep 0.02; done; fi; touch ${setup.scratch}/b2` },
  ]);
  for (const page of [one, two]) {
    await page.getByText("Tabs or spaces?").waitFor();
    await page.waitForFunction(() => document.title === "1 needs you · ralph");
  }
  await one.locator(".ask textarea").fill("half a thought");
  // A change elsewhere does not take the text away.
  await two.keyboard.press("a");
  await two.keyboard.type("Tabs.");
  await two.keyboard.press("Enter");
  for (const page of [one, two]) await page.locator(".ask").waitFor({ state: "detached" });
  await one.waitForFunction(() => document.title === "ralph");
  go("beta");
  await run.ended;
  for (const page of [one, two]) { clean(page); await page.context().close(); }
});

await test("reconnects after a restart without losing or repeating entries", async () => {
  const page = await open(browser, origin, { viewport: PHONE });
  await page.goto(server.full);
  const run = await loop("gamma", [{ print: "words before" }, waitHere("g1"), { print: "while away" }, waitHere("g2"), { print: "words after" }, waitHere("g3")]);
  await rowOf(page, "gamma").locator("a").click();
  await page.getByText("words before").waitFor();
  await stop(server.child);
  await page.locator("#live[data-state=late]").waitFor();
  go("g1");
  await page.getByText("reconnecting").waitFor();
  Object.assign(server, await serve(server.port));
  await live(page);
  await page.getByText("while away").waitFor();
  go("g2");
  await page.getByText("words after").waitFor();
  for (const text of ["words before", "while away", "words after"]) assert.equal(await page.locator(".say", { hasText: text }).count(), 1, text);
  go("g3");
  await stop(run);
  await page.context().close();
});

await test("following stops when the reader scrolls up", async () => {
  const page = await open(browser, origin, { viewport: PHONE });
  const lines = Array.from({ length: 60 }, (_, at) => ({ print: `line ${at}\n` }));
  const run = await loop("delta", [...lines, waitHere("d1"), { print: "news one" }, { print: "news two" }, waitHere("d2")]);
  await page.goto(server.full);
  await rowOf(page, "delta").locator("a").click();
  await page.getByText("line 59").waitFor();
  await page.evaluate(() => scrollTo(0, 300));
  const top = await page.evaluate(() => scrollY);
  go("d1");
  await page.locator("#new", { hasText: "new ↓" }).waitFor();
  assert.equal(await page.evaluate(() => scrollY), top);
  await page.locator("#new").click();
  await page.locator("#follow:not(.off)").waitFor();
  await page.getByText("news two").waitFor();
  go("d2");
  await stop(run);
  clean(page);
  await page.context().close();
});

await test("hostile output stays text", async () => {
  const page = await open(browser, origin);
  page.on("dialog", () => page.problems.push("a dialog opened"));
  const run = await loop("epsilon", [
    { print: "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'>" },
    { print: "\u001b[31mred\u001b[0m \u202Eabc [x](javascript:window.hacked=3) <a href='https://evil.example'>x</a>" },
    { long_line_megabytes: 10 }, { print: "the end" }, waitHere("e1"),
  ]);
  await page.goto(server.full);
  await rowOf(page, "epsilon").locator("a").click();
  await page.getByText("the end").waitFor();
  // The long line fills the end of the journal, so a new page starts behind it.
  await page.reload();
  await page.locator("#main a", { hasText: "Show the beginning" }).click();
  await page.getByText("<script>window.hacked=1</script>").waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator("#log a").count(), 0);
  assert.ok(!/[\u001b\u202e]/.test(await page.content()));
  go("e1");
  await stop(run);
  clean(page);
  await page.context().close();
});

await test("missing and wrong token, read-only", async () => {
  const page = await open(browser, origin);
  assert.equal((await page.goto(origin + "/")).status(), 401);
  assert.equal((await page.goto(origin + "/?token=wrong")).status(), 401);
  await page.goto(server.readOnly);
  await page.getByText("read-only").waitFor();
  await rowOf(page, "beta").locator("a").click();
  await live(page);
  assert.equal(await page.locator("form, textarea, a[href$='/new']").count(), 0);
  await page.context().close();
});

await test("works without JavaScript", async () => {
  const page = await open(browser, origin, { javaScript: false, viewport: PHONE });
  const run = await loop("zeta", [{ print: "plain words" }, waitHere("z1")]);
  await page.goto(server.full);
  await reloadUntil(page, "zeta");
  await rowOf(page, "zeta").locator("a").click();
  await reloadUntil(page, "plain words");
  await page.locator("#tell").fill("No script here.");
  await page.getByRole("button", { name: "Send" }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await reloadUntil(page, "No script here.");
  for (const tab of ["Stories", "Diff", "Checks", "Costs", "Report", "Activity"]) {
    await page.locator(".tabs").getByText(tab, { exact: false }).click();
    await page.locator(`.tabs [aria-current]`, { hasText: tab }).waitFor();
  }
  await page.locator("#b-stop").click();
  await page.getByRole("button", { name: "End it now" }).click();
  await run.ended;
  clean(page);
  await page.context().close();
});
await stop(server.child);

await test("every view passes axe, in both themes and sizes, and loads nothing from outside", async () => {
  const sample = setup.sample;
  const where = new URL(sample.link).origin;
  const axe = fs.readFileSync(axePath, "utf8");
  const run = `/runs/${sample.run}`;
  const views = ["/", run, `${run}/stories`, `${run}/diff`, `${run}/checks`, `${run}/costs`, `${run}/report`, `${run}/stop`, "/new", "/?all=1", "/runs/none"];
  const check = async ([viewport, theme]) => {
    const page = await open(browser, where, { viewport, theme, bypassCSP: true });
    await page.goto(sample.link);
    for (const view of views) {
      await page.goto(where + view);
      if (view === run) await page.locator("#b-stop").waitFor();
      await page.evaluate(axe);
      const result = await page.evaluate(() => axe.run());
      const found = result.violations.map((it) => `${it.impact} ${it.id}: ${it.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
      assert.deepEqual(found, [], `${view} ${theme} ${viewport.width}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 0, `${view} scrolls sideways by ${wide} px at ${viewport.width}`);
    }
    assert.deepEqual(page.foreign, []);
    await page.context().close();
  };
  await Promise.all([[PHONE, "light"], [PHONE, "dark"], [DESKTOP, "light"], [DESKTOP, "dark"]].map(check));
});

await test("times count on without messages", async () => {
  const page = await open(browser, new URL(setup.sample.link).origin);
  await page.clock.install({ time: NOW });
  await page.goto(setup.sample.link);
  await live(page);
  const texts = () => Promise.all(["[data-until]", "[data-unit=ago]"].map((it) => page.locator(it).first().textContent()));
  const [left, age] = await texts();
  await page.clock.fastForward(180_000);
  const minutes = (text) => Number(/\d+/.exec(text)[0]);
  const [later, older] = await texts();
  assert.deepEqual([minutes(left) - minutes(later), minutes(older) - minutes(age)], [3, 3], `${left} ${later} ${age} ${older}`);
  await page.context().close();
});

for (const child of started) child.kill("SIGKILL");
await browser.close();
