// The two APIs that the page knows. Nothing here knows of a gateway.

/** An answer that is no success, in the server's words. */
export class Refused extends Error {
  constructor(status, code, words, retryAfter) {
    super(words);
    Object.assign(this, { status, code, retryAfter });
  }
}

/** One login at a server. With `cookies`, the browser's cookies are the login. */
class Server {
  constructor(url, cookies) {
    this.url = url;
    this.cookies = cookies;
    this.token = null;
    this.number = Date.now();
  }

  async request(method, path, body, type = "application/json") {
    const headers = {};
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) headers["Content-Type"] = type;
    const answer = await fetch(this.url + path, {
      method, headers, credentials: this.cookies ? "include" : "same-origin",
      body: type === "application/json" && body !== undefined ? JSON.stringify(body) : body,
    });
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const isJSON = (answer.headers.get("Content-Type") ?? "").includes("json");
    const json = isJSON && bytes.length ? JSON.parse(new TextDecoder().decode(bytes)) : null;
    if (!answer.ok) {
      throw new Refused(
        answer.status, json?.errcode ?? json?.error, json?.errcode ? json.error : json?.message,
        answer.headers.get("Retry-After"));
    }
    return json ?? bytes;
  }

  nextID() { return `web-${this.number++}`; }
}

export class Generic extends Server {
  async logIn(user, password) {
    const answer = await this.request("POST", "/login", { user, password });
    [this.token, this.me] = [answer.token, answer.id];
  }

  async history(room) {
    const answer = await this.request("GET", `/conversations/${room}/messages`);
    return answer.messages.map((m) => ({ id: m.message_id, sender: m.sender, text: m.text, edited: m.edited }));
  }

  async send(room, text) {
    return (await this.request("POST", `/conversations/${room}/messages`, { id: this.nextID(), text })).message_id;
  }

  edit(room, id, text) { return this.request("PATCH", `/conversations/${room}/messages/${id}`, { text }); }

  async upload(_, file) {
    return (await this.request("POST", "/files", file, "application/octet-stream")).file_id;
  }

  download(id) { return this.request("GET", `/files/${id}`); }

  /** Calls `receive` with each message that the server sends. */
  listen(receive, lost) {
    const token = this.token ? `?token=${encodeURIComponent(this.token)}` : "";
    this.socket = new WebSocket(this.url.replace(/^http/, "ws") + "/socket" + token);
    this.socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (frame.type === "message" || frame.type === "edited") receive(frame.conversation);
    };
    this.socket.onclose = lost;
    return new Promise((done) => (this.socket.onopen = done));
  }
}

export class Matrix extends Server {
  async logIn(user, password) {
    const answer = await this.request("POST", "/_matrix/client/v3/login", {
      type: "m.login.password", identifier: { type: "m.id.user", user }, password,
    });
    [this.token, this.me] = [answer.access_token, answer.user_id];
  }

  room(room) { return `/_matrix/client/v3/rooms/${encodeURIComponent(room)}`; }

  async history(room) {
    const answer = await this.request("GET", `${this.room(room)}/messages?dir=f&limit=100`);
    const messages = new Map();
    for (const event of answer.chunk) {
      if (event.type !== "m.room.message") continue;
      const relation = event.content["m.relates_to"];
      const edited = relation?.rel_type === "m.replace" && messages.get(relation.event_id);
      if (edited) {
        [edited.text, edited.edited] = [event.content["m.new_content"]?.body, true];
      } else {
        messages.set(event.event_id, { id: event.event_id, sender: event.sender, text: event.content.body,
          file: event.content.url });
      }
    }
    return [...messages.values()];
  }

  async put(room, content) {
    return (await this.request("PUT", `${this.room(room)}/send/m.room.message/${this.nextID()}`, content)).event_id;
  }

  send(room, text) { return this.put(room, { msgtype: "m.text", body: text }); }

  edit(room, id, text) {
    const content = { msgtype: "m.text", body: text };
    return this.put(room, {
      ...content, body: `* ${text}`, "m.new_content": content, "m.relates_to": { rel_type: "m.replace", event_id: id },
    });
  }

  async upload(room, file) {
    const answer = await this.request(
      "POST", `/_matrix/media/v3/upload?filename=${encodeURIComponent(file.name)}`, file,
      file.type || "application/octet-stream");
    await this.put(room, { msgtype: "m.file", body: file.name, url: answer.content_uri });
    return answer.content_uri;
  }

  download(uri) { return this.request("GET", `/_matrix/client/v1/media/download/${uri.slice("mxc://".length)}`); }

  /** Calls `receive` after each answer of a long poll that has news. */
  async listen(receive, lost) {
    let since = (await this.request("GET", "/_matrix/client/v3/sync?timeout=0")).next_batch;
    const poll = async () => {
      for (;;) {
        const answer = await this.request("GET", `/_matrix/client/v3/sync?timeout=20000&since=${since}`);
        since = answer.next_batch;
        for (const room of Object.keys(answer.rooms?.join ?? {})) receive(room);
      }
    };
    poll().catch(lost);
  }
}
