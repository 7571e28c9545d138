// A headless Chromium, driven over a pipe by its DevTools protocol. No packages, no port.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
];
const ANSWER_MS = 60_000;

/** The browser's command: $CHROMIUM or the first of the usual names; null if there is none. */
export function find() {
  const wanted = process.env.CHROMIUM ? [process.env.CHROMIUM] : NAMES;
  return wanted.find((name) => spawnSync(name, ["--version"]).status === 0) ?? null;
}

export class Browser {
  constructor(command) {
    this.folder = mkdtempSync(join(tmpdir(), "uplake-browser-"));
    const args = [...FLAGS, `--user-data-dir=${this.folder}`, "about:blank"];
    this.process = spawn(command, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.next = 1;
    this.waiting = new Map();
    this.listeners = [];
    let rest = "";
    this.process.stdio[4].on("data", (data) => {
      const parts = (rest + data).split("\0");
      rest = parts.pop();
      parts.forEach((part) => this.receive(JSON.parse(part)));
    });
  }

  receive(message) {
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (!waiting) return this.listeners.forEach((listener) => listener(message));
    clearTimeout(waiting.timer);
    if (message.error) waiting.reject(new Error(JSON.stringify(message.error)));
    else waiting.resolve(message.result);
  }

  send(method, params = {}, sessionId) {
    const id = this.next++;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      const late = () => reject(new Error(`${method}: no answer within ${ANSWER_MS} ms`));
      this.waiting.set(id, { resolve, reject, timer: setTimeout(late, ANSWER_MS) });
    });
  }

  /** Opens `url`; waits until it is loaded. `dark`, `script: false`, sizes and `before`, a function that runs
   *  before the page's own script, are optional. */
  async open(url, { width = 1400, height = 900, dark = false, script = true, before } = {}) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    for (const domain of ["Page", "Runtime", "Network", "Log", "DOM"]) await page.send(`${domain}.enable`);
    await page.size(width, height);
    await page.dark(dark);
    if (before) await page.send("Page.addScriptToEvaluateOnNewDocument", { source: `(${before})()` });
    if (!script) await page.send("Emulation.setScriptExecutionDisabled", { value: true });
    const loaded = page.once("Page.loadEventFired");
    await page.send("Page.navigate", { url });
    await loaded;
    return page;
  }

  async close() {
    await this.send("Browser.close").catch(() => {});
    await new Promise((resolve) => {
      if (this.process.exitCode !== null) resolve();
      this.process.once("exit", resolve);
    });
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

class Page {
  constructor(browser, session, target) {
    Object.assign(this, { browser, session, target, requests: [], complaints: [], handlers: [] });
    browser.listeners.push((message) => {
      if (message.sessionId === session) this.hear(message);
    });
  }

  hear({ method, params }) {
    this.handlers = this.handlers.filter((handler) => !handler(method, params));
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    if (method === "Runtime.exceptionThrown")
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Log.entryAdded") this.complaints.push(`${params.entry.level}: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled")
      this.complaints.push(`console.${params.type}: ${params.args.map((arg) => arg.value).join(" ")}`);
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  once(event) {
    return new Promise((resolve) =>
      this.handlers.push((method, params) => method === event && (resolve(params), true)));
  }

  async size(width, height) {
    const params = { width, height, deviceScaleFactor: 1, mobile: width < 500 };
    await this.send("Emulation.setDeviceMetricsOverride", params);
  }

  async dark(on) {
    const features = [{ name: "prefers-color-scheme", value: on ? "dark" : "light" }];
    await this.send("Emulation.setEmulatedMedia", { features });
  }

  /** The value of `body`, a function's text or a function, called in the page with `args`. */
  async run(body, ...args) {
    const expression = `(${body})(...${JSON.stringify(args)})`;
    const params = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", params);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? "no details");
    return result.value;
  }

  /** Presses and releases a key such as "Tab", "ArrowRight", "Enter". */
  async press(key) {
    const codes = { Tab: 9, Enter: 13, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40 };
    const params = { key, code: key, windowsVirtualKeyCode: codes[key] };
    if (key === "Enter") params.text = "\r";
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...params });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...params });
  }

  /** The page as PNG, all of it or the part `clip`. */
  async picture(clip) {
    const full = await this.run(() => ({
      x: 0, y: 0, width: innerWidth, height: document.documentElement.scrollHeight,
    }));
    const params = { captureBeyondViewport: true, clip: { ...full, ...clip, scale: 1 } };
    const { data } = await this.send("Page.captureScreenshot", params);
    return Buffer.from(data, "base64");
  }

  async close() {
    await this.browser.send("Target.closeTarget", { targetId: this.target });
  }
}
