// A client of the gateway's control plane (`/_pawl/v1`, Sources/WIRE.md) with the keys of WebCrypto: it publishes a
// device of its own and checks those of others. What a browser cannot do is in README.md.

const subtle = crypto.subtle;
const ascii = (text) => new TextEncoder().encode(text);

function joined(...parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Big-endian. */
const number = (value, size) =>
  Uint8Array.from({ length: size }, (_, i) => Number((BigInt(value) >> BigInt(8 * (size - 1 - i))) & 255n));
const prefixed = (bytes) => joined(number(bytes.length, 2), bytes);
const base64 = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/=+$/, "");
const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);
const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const signedText = (context, bytes) => joined(ascii("DoubleRatchet/1 " + context), number(0, 1), bytes);

const sign = async (key, context, bytes) =>
  new Uint8Array(await subtle.sign("Ed25519", key, signedText(context, bytes)));

async function verify(identity, signature, context, bytes) {
  const key = await subtle.importKey("raw", identity, "Ed25519", false, ["verify"]);
  return subtle.verify("Ed25519", key, signature, signedText(context, bytes));
}

class Reader {
  constructor(bytes) { [this.rest] = [bytes]; }

  bytes(count) {
    if (this.rest.length < count) throw new Error("too short");
    const taken = this.rest.slice(0, count);
    this.rest = this.rest.slice(count);
    return taken;
  }

  number(size) { return Number(BigInt("0x" + hex(this.bytes(size)))); }
  prefixed() { return this.bytes(this.number(2)); }
}

/** The devices of a list's newest version and its root key; throws if a signature or a rule does not hold. */
export async function readList(bytes) {
  const reader = new Reader(bytes);
  if (reader.number(1) !== 1) throw new Error("another version of the list's form");
  const count = reader.number(1);
  if (count < 1 || count > 12) throw new Error("too many versions");
  let [before, previous, root] = [null, new Uint8Array(64), null];
  const known = new Map();
  for (let version = 1; version <= count; version++) {
    const size = reader.number(1);
    if (size < 1 || size > (before ? 6 : 1)) throw new Error("too many devices");
    const devices = new Map();
    for (let i = 0; i < size; i++) {
      const [id, identity] = [hex(reader.bytes(8)), reader.bytes(32)];
      const isTwice = devices.has(id) || [...devices.values()].some((other) => equal(other, identity));
      if (isTwice) throw new Error("a device twice");
      if (known.has(id) && !equal(known.get(id), identity)) throw new Error("another key of a device");
      devices.set(id, identity);
      known.set(id, identity);
    }
    const [signer, signature] = [reader.bytes(8), reader.bytes(64)];
    const key = (before ?? devices).get(hex(signer));
    const listed = [...devices].map(([id, identity]) => joined(number("0x" + id, 8), identity));
    const text = joined(number(version, 4), previous, signer, number(size, 1), ...listed);
    if (!key || !(await verify(key, signature, "pawl device list", text))) throw new Error("the list is forged");
    root ??= [...devices.values()][0];
    [before, previous] = [devices, signature];
  }
  if (reader.rest.length) throw new Error("too long");
  return { root, devices: before };
}

/** The list of a person, checked. The server's names of the devices must be those of the list. */
export async function checkDevices(server, person) {
  const answer = await server.request("GET", `/_pawl/v1/accounts/${encodeURIComponent(person)}/devices`);
  const reader = new Reader(fromBase64(answer.message));
  if (reader.number(1) !== 34 || reader.number(1) !== 2) throw new Error("this person has no devices");
  reader.prefixed();
  return readList(reader.prefixed());
}

async function fingerprint(root) {
  let hash = joined(number(1, 2), root, root, root);
  for (let i = 0; i < 5200; i++) {
    hash = new Uint8Array(await subtle.digest("SHA-512", i ? joined(hash, root) : hash));
  }
  return hash.slice(0, 32);
}

/** 60 digits that both people see. */
export async function safetyNumber(ours, theirs) {
  const halves = await Promise.all(
    [ours, theirs].map(async (root) => {
      const bytes = await fingerprint(root);
      const group = (i) => BigInt("0x" + hex(bytes.slice(5 * i, 5 * i + 5))) % 100000n;
      return Array.from({ length: 6 }, (_, i) => String(group(i)).padStart(5, "0")).join(" ");
    }));
  return halves.sort().join(" ");
}

/** A device of this page. Its private keys cannot be exported, and are lost with the page. */
export class PageDevice {
  static async make() {
    const device = new PageDevice();
    device.id = crypto.getRandomValues(new Uint8Array(8));
    device.keys = await subtle.generateKey("Ed25519", false, ["sign", "verify"]);
    device.identity = new Uint8Array(await subtle.exportKey("raw", device.keys.publicKey));
    const key = device.keys.privateKey;
    device.signedPrekey = await subtle.generateKey("X25519", false, ["deriveBits"]);
    device.kemPrekey = await subtle.generateKey("ML-KEM-1024", false, ["encapsulateBits", "decapsulateBits"]);
    // The highest bit of the id: sessions with this device are in version 3 of the ratchet message.
    const signed = joined(
      number(0x80000001, 4), new Uint8Array(await subtle.exportKey("raw", device.signedPrekey.publicKey)));
    const kem = joined(
      number(1, 4), number(1, 1), new Uint8Array(await subtle.exportKey("raw-public", device.kemPrekey.publicKey)));
    device.bundle = joined(
      number(1, 1), number(0, 1), device.identity, signed, await sign(key, "prekey signed", signed), kem,
      await sign(key, "prekey ML-KEM-1024", kem));
    const listed = joined(number(1, 1), device.id, device.identity);
    const text = joined(number(1, 4), new Uint8Array(64), device.id, listed);
    device.list = joined(number(1, 1), number(1, 1), listed, device.id, await sign(key, "pawl device list", text));
    return device;
  }

  /** Proves the device to the gateway and publishes it; the id under which the gateway knows it. */
  async publish(server) {
    const { account, challenge } = await server.request("POST", "/_pawl/v1/challenge");
    const entry = joined(this.id, prefixed(this.bundle), prefixed(new Uint8Array(0)));
    const text = joined(fromBase64(challenge), prefixed(ascii(account)), prefixed(this.list), entry);
    const signature = await sign(this.keys.privateKey, "pawl directory", text);
    const message = joined(number(16, 1), prefixed(this.list), prefixed(entry), signature);
    return (await server.request("PUT", "/_pawl/v1/device", { message: base64(message) })).device;
  }
}

/** What end-to-end messages need and this browser's WebCrypto lacks; it is asked, since newer ones have more. */
export async function lacking() {
  const makes = (algorithm, uses) => subtle.generateKey(algorithm, false, uses);
  const needed = {
    "Ed25519": () => makes("Ed25519", ["sign", "verify"]),
    "X25519": () => makes("X25519", ["deriveBits"]),
    "ML-KEM-768": () => makes("ML-KEM-768", ["encapsulateBits", "decapsulateBits"]),
    "AES-256-GCM-SIV": () => makes({ name: "AES-GCM-SIV", length: 256 }, ["encrypt", "decrypt"]),
    "SHA3-256": () => subtle.digest("SHA3-256", new Uint8Array(1)),
  };
  const found = [];
  for (const [name, tries] of Object.entries(needed)) await Promise.resolve().then(tries).catch(() => found.push(name));
  return found;
}
