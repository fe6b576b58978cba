// Opens the page in a headless Chromium. Commands come in as lines of JSON, [name, ...arguments]; what the page
// reports goes out the same way.

import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const bundle = await build({
  entryPoints: [new URL("page.js", import.meta.url).pathname],
  bundle: true,
  write: false,
  format: "iife",
});
const script = bundle.outputFiles[0].text;

// An origin of its own, as a chat's site has.
const site = createServer((request, response) => {
  const isScript = request.url === "/page.js";
  response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
  response.end(isScript ? script : "<!doctype html><script src=page.js></script>");
});
await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const say = (report) => console.log(JSON.stringify(report));
const page = await browser.newPage();
page.on("pageerror", (error) => say({ error: String(error) }));
await page.exposeFunction("report", say);
await page.goto(`http://127.0.0.1:${site.address().port}/`);
say({ ready: true });

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...given] = JSON.parse(line);
  if (command === "leave") {
    await page.close();
    say({ left: true });
  } else {
    await page.evaluate(([name, values]) => window.commands[name](...values), [command, given]);
  }
}
await browser.close();
site.close();
