// Makes pictures of the sample evening: screenshots.mjs LINK RUN DIRECTORY [NAME…]
import { DESKTOP, NOW, PHONE, launch, open } from "./browser.mjs";

const [link, run, directory, ...wanted] = process.argv.slice(2);
const { origin } = new URL(link);
const VIEWS = {
  overview: "/", run: `/runs/${run}`, stories: `/runs/${run}/stories`, diff: `/runs/${run}/diff`, checks: `/runs/${run}/checks`,
  costs: `/runs/${run}/costs`, report: `/runs/${run}/report`, stop: `/runs/${run}`, new: "/new",
};

const browser = await launch();
for (const [size, viewport] of [["phone", PHONE], ["desktop", DESKTOP]]) {
  for (const theme of ["light", "dark"]) {
    const page = await open(browser, origin, { viewport, theme });
    await page.clock.setFixedTime(NOW);
    await page.goto(link);
    for (const [view, path] of Object.entries(VIEWS)) {
      const name = `web-${view}-${size}-${theme}`;
      if (wanted.length && !wanted.some((part) => name.includes(part))) continue;
      await page.goto(origin + path);
      if (view !== "new") await page.locator("#live[data-state=live]").waitFor();
      if (view === "stop") {
        await page.locator("#b-stop").click();
        await page.locator("dialog").waitFor();
        await page.clock.runFor(400);
      }
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: `${directory}/${name}.png` });
    }
    if (page.foreign.length + page.problems.length) console.error(page.foreign, page.problems);
    await page.context().close();
  }
}
await browser.close();
