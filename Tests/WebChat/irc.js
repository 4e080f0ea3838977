// A web client of IRC in one page: IRCv3 "WebSocket", one line in each message. Nothing here knows of a gateway.

const element = (id) => document.getElementById(id);
let socket = null;
let nick = "";

/** The parts of a line. RFC 1459 section 2.3.1, with IRCv3 tags. */
function parse(line) {
  const found = /^(?:@(\S+) +)?(?::(\S+) +)?(\S+) *(.*)$/s.exec(line);
  const [head, ...trailing] = ` ${found[4]}`.split(/ :(.*)/s);
  const words = head.split(" ").filter((word) => word);
  if (trailing.length) words.push(trailing[0]);
  return { sender: (found[2] ?? "").split("!")[0], command: found[3].toUpperCase(), words };
}

function show(text) {
  const line = document.createElement("li");
  line.textContent = text;
  element("messages").append(line);
}

function take({ sender, command, words }) {
  const text = words[words.length - 1] ?? "";
  switch (command) {
    case "PING": return socket.send(`PONG :${text}`);
    case "CAP":
      if (words[1] === "LS") {
        const offered = text.split(" ").map((name) => name.split("=")[0]);
        const wanted = ["server-time", "message-tags"].filter((name) => offered.includes(name));
        return socket.send(wanted.length ? `CAP REQ :${wanted.join(" ")}` : "CAP END");
      }
      if (words[1] === "ACK") element("capabilities").textContent = text.trim();
      return socket.send("CAP END");
    case "001":
      nick = words[0];
      document.body.dataset.state = "open";
      return undefined;
    case "PRIVMSG": return show(`${words[0] === nick ? "" : `${words[0]} `}<${sender}> ${text}`);
    case "NOTICE": return document.body.dataset.state === "open" ? show(`-${sender}- ${text}`) : undefined;
    case "JOIN": return show(`${sender} joins ${words[0]}`);
    case "PART": return show(`${sender} leaves ${words[0]}`);
    case "QUIT": return show(`${sender} quits`);
    case "FAIL": return show(`FAIL ${text}`);
    default: return /^[45]/.test(command) && command !== "422" ? show(`${command} ${text}`) : undefined;
  }
}

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const protocol = element("protocol").value;
  socket = new WebSocket(element("server").value, protocol ? [protocol] : []);
  socket.binaryType = "arraybuffer";
  document.body.dataset.state = "connecting";
  socket.onopen = () => {
    element("state").textContent = socket.protocol;
    for (const line of ["CAP LS 302", `NICK ${element("nick").value}`, "USER page 0 * :page"]) socket.send(line);
  };
  socket.onmessage = ({ data }) => take(parse(typeof data === "string" ? data : new TextDecoder().decode(data)));
  socket.onclose = ({ code, wasClean }) => {
    document.body.dataset.state = "closed";
    element("state").textContent = `${code} ${wasClean ? "clean" : "torn"}`;
  };
});

element("send").addEventListener("click", () => {
  const [target, text] = [element("target").value, element("text").value];
  socket.send(`PRIVMSG ${target} :${text}`);
  show(`${target} <${nick}> ${text}`);
});
element("join").addEventListener("click", () => socket.send(`JOIN ${element("target").value}`));
element("leave").addEventListener("click", () => socket.send("QUIT :the page is closed"));
document.body.dataset.ready = "yes";
