// The page: what a person does, and what is shown for it.
import { Generic, Matrix, Refused } from "./backends.js";
import { checkDevices, lacking, PageDevice, safetyNumber } from "./directory.js";

const element = (id) => document.getElementById(id);
let server = null;
let device = null;

/** Runs what a person has asked for; a refusal is shown in words. */
function on(id, event, action) {
  element(id).addEventListener(event, async (happened) => {
    happened.preventDefault();
    element("notice").textContent = "";
    document.body.dataset.busy = "yes";
    try {
      await action();
    } catch (error) {
      // A browser says no more of an answer that the page may not read.
      element("notice").textContent =
        error instanceof Refused ? `${error.status} ${error.code}: ${error.message}` : `no answer: ${error.message}`;
      element("notice").dataset.retry = error.retryAfter ?? "";
    }
    document.body.dataset.busy = "";
  });
}

async function show() {
  const messages = await server.history(element("room").value);
  element("messages").replaceChildren(
    ...messages.map((message) => {
      const line = document.createElement("li");
      line.dataset.id = message.id;
      line.className = message.sender === server.me ? "own" : "";
      line.textContent = `${message.sender}: ${message.text}${message.edited ? " (edited)" : ""}`;
      return line;
    }));
}

on("login", "submit", async () => {
  const kind = element("kind").value === "matrix" ? Matrix : Generic;
  const cookies = new URLSearchParams(location.search).has("cookies");
  server = new kind(element("server").value, cookies);
  await server.logIn(element("user").value, element("password").value);
  // The browser's cookie is the login from now on.
  if (cookies) server.token = null;
  element("me").textContent = server.me;
  await server.listen(
    (room) => room === element("room").value && show().catch(() => {}),
    () => (document.body.dataset.socket = "lost"));
  document.body.dataset.socket = "open";
});
on("open", "click", show);
on("send", "click", async () => {
  await server.send(element("room").value, element("text").value);
  await show();
});
on("edit", "click", async () => {
  const own = [...document.querySelectorAll("li.own")].pop();
  await server.edit(element("room").value, own.dataset.id, element("text").value);
  await show();
});
on("upload", "click", async () => {
  const id = await server.upload(element("room").value, element("file").files[0]);
  element("file-text").textContent = new TextDecoder().decode(await server.download(id)).slice(0, 100);
});
on("publish", "click", async () => {
  device = await PageDevice.make();
  element("device").textContent = await device.publish(server);
});
on("check", "click", async () => {
  const other = await checkDevices(server, element("person").value);
  element("safety").textContent = await safetyNumber(device.identity, other.root);
});
// Each is enough to make no end-to-end message readable here; README.md says what else is missing.
const missing = await lacking();
element("lacks").textContent = missing.length
  ? `This page publishes and checks devices. It can neither open nor send end-to-end messages: this browser's WebCrypto has
     no ${missing.join(", no ")}.`.replace(/\s+/g, " ")
  : "This browser's WebCrypto has all that end-to-end messages need.";
document.body.dataset.ready = "yes";
