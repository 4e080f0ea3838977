import CallSignalling
import HTTPCodec
import NIOCore
import Protection
import StorePort
import Synchronization
import TestKit

@testable import DeviceDirectory
@testable import Devices
@testable import Envelope
@testable import IRCServer
@testable import JSONCodec
@testable import JSONGateway
@testable import NIOSupport
@testable import Vault

/// What reaches gateways before anybody has authenticated it or is kept by a backend: PROXY headers, lines in
/// WebSockets, calls of the control plane, relays and sealed files.
enum GatewayForms {
    static let readers: [FormProgramme.Reader] = [
        { try proxy(&$0) }, { try addresses(&$0) }, { try line(&$0) }, { try lines(&$0) }, { try route(&$0) },
        { try call(&$0) }, { try body(&$0) }, { try inBand(&$0) }, { try sealedFile(&$0) }, { try fileHeader(&$0) },
        { try relays(&$0) }, { try allowance(&$0) },
    ]

    // MARK: PROXY

    private static func address(_ input: inout FormInput) -> ProxiedAddresses? {
        func address(_ bytes: [UInt8], _ port: Int) -> SocketAddress? {
            try? SocketAddress(packedIPAddress: ByteBuffer(bytes: bytes), port: port)
        }
        let size = input.byte() % 2 == 0 ? 4 : 16
        func ip() -> [UInt8] { (0..<size).map { _ in UInt8(input.byte()) } }
        guard let source = address(ip(), input.number()), let destination = address(ip(), input.number()) else {
            return nil
        }
        return ProxiedAddresses(source: source, destination: destination)
    }

    private enum Read: Equatable {
        case incomplete
        case header(ProxiedAddresses?, isSecure: Bool, length: Int)
        case refused
    }

    private static func read(_ bytes: ArraySlice<UInt8>) throws -> Read {
        var buffer = ByteBuffer(bytes: bytes)
        let outcome = try? ProxyProtocol.read(&buffer)
        switch outcome {
        case nil: return .refused
        case .incomplete:
            try demand(buffer.readableBytes == bytes.count, "an incomplete header is taken")
            return .incomplete
        case .header(let addresses, let isSecure):
            return .header(addresses, isSecure: isSecure, length: bytes.count - buffer.readableBytes)
        }
    }

    /// A header that comes byte by byte is the same one, and what comes behind it does not count.
    private static func proxy(_ input: inout FormInput) throws {
        let addresses = input.byte() % 4 == 0 ? nil : address(&input)
        let version: ProxyProtocol.Version = input.byte() % 2 == 0 ? .v1 : .v2
        let security = input.byte() % 2 == 0 ? nil : ClientSecurity()
        let genuine = Array(ProxyProtocol.header(version, addresses, security: security).readableBytesView)
        let bytes = input.changed(genuine)
        let whole = try read(bytes[...])
        var first = Read.incomplete
        for count in 1..<max(bytes.count + 1, 2) where first == .incomplete { first = try read(bytes.prefix(count)) }
        try demand(first == whole || bytes.isEmpty, "a header in pieces is another header")
        guard case .header(let read, _, let length) = whole else {
            let isLong = bytes.count > 16 + ProxyProtocol.v2Length
            return try demand(whole == .refused || !isLong, "a long header is waited for")
        }
        try demand(length <= max(ProxyProtocol.v1Length, 16 + ProxyProtocol.v2Length), "a long header")
        guard let read else { return }
        for version in ProxyProtocol.Version.allCases {
            let written = Array(ProxyProtocol.header(version, read).readableBytesView)
            let again = try Self.read(written[...])
            try demand(
                again == .header(read, isSecure: false, length: written.count), "addresses are written as others")
        }
    }

    private static func addresses(_ input: inout FormInput) throws {
        guard let addresses = address(&input) else { return }
        for version in ProxyProtocol.Version.allCases {
            for security in [nil, ClientSecurity()] {
                let bytes = Array(ProxyProtocol.header(version, addresses, security: security).readableBytesView)
                let expected = Read.header(
                    addresses, isSecure: version == .v2 && security != nil, length: bytes.count)
                try demand(try read((bytes + [1, 2])[...]) == expected, "addresses are read as others")
            }
        }
    }

    // MARK: Lines in WebSockets

    private static func line(_ input: inout FormInput) throws {
        let isText = input.byte() % 2 == 0
        let bytes = input.changed(Array("@a=b :n!u@h PRIVMSG #c :\u{E9}\r\n".utf8))
        guard let line = try? WebSocketLines.line(ByteBuffer(bytes: bytes), isText: isText) else { return }
        let view = Array(line.readableBytesView)
        try demand(view.suffix(2) == [0x0D, 0x0A] && view.count > 2, "a line without its end")
        try demand(view.dropLast(2).allSatisfy { $0 != 0x0D && $0 != 0x0A && $0 != 0 }, "several lines in a message")
        try demand(bytes.starts(with: view.dropLast(2)), "a line of other bytes")
        var lines = WebSocketLines(isText ? .text : .binary)
        let messages = lines.messages(line)
        try demand(messages.map { Array($0.readableBytesView) } == [Array(view.dropLast(2))], "a line becomes another")
    }

    /// A stream in pieces has the messages of the whole.
    private static func lines(_ input: inout FormInput) throws {
        let kind: LineSubprotocol = input.byte() % 2 == 0 ? .text : .binary
        let bytes = input.changed(Array(":a PRIVMSG b :\u{E9}\r\n\r\nPING x\n".utf8))
        func messages(_ size: Int) -> [[UInt8]] {
            var (lines, messages) = (WebSocketLines(kind), [[UInt8]]())
            FormInput.divide(bytes, size) { piece in
                messages += lines.messages(ByteBuffer(bytes: piece)).map { Array($0.readableBytesView) }
                return true
            }
            return messages
        }
        let whole = messages(bytes.count)
        for size in [1, 3] { try demand(messages(size) == whole, "lines in pieces are other lines") }
        for message in whole {
            try demand(!message.isEmpty && !message.contains(0x0A), "a message with an end of a line")
            try demand(kind == .binary || String(validating: message, as: UTF8.self) != nil, "a text that is none")
        }
    }

    // MARK: Control plane

    private static let account = AccountID.services("alice")

    private static func caller() throws -> ControlCaller {
        let device = FormDevice.all[0]
        let mapping = Mapping(
            name: "test", account: AccountSource(credentials: [], target: "/whoami", name: try JSONPath("$.name")))
        let environment = JSONEnvironment(
            mapping: mapping, policies: PolicyTable(PolicySnapshot(everyone: .hosted)),
            writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))), answerLimit: 1 << 20)
        let credential = Credential().digest
        let published = PublishedDevice(id: device.id, bundle: device.bundle, oneTime: device.oneTime)
        environment.directory.put(
            account, DirectoryAccount(deviceList: device.list, devices: [device.id: published], provenAt: 0))
        environment.devices.prove(device.id, of: account, by: credential)
        return ControlCaller(
            environment: environment, connection: ConnectionID(1), account: account, credential: credential)
    }

    private static let calls: [(method: String, path: String, body: String)] = [
        ("POST", "challenge", ""), ("GET", "me", ""), ("PUT", "device", #"{"message":"Ag"}"#),
        ("PUT", "keys", #"{"message":"Eg"}"#), ("PUT", "list", #"{"message":"Ag=="}"#),
        (
            "POST", "messages",
            #"{"id":"m","recipients":[{"account":"bob","device":"00000000000000ab","message":"AQID"},{"account":"bob","device":"00000000000000ac","message":""}],"body":"AQID"}"#
        ),
        ("GET", "messages?after=7&wait=3", ""), ("PUT", "messages/acknowledged", #"{"through":7}"#),
        ("GET", "socket", ""), ("PUT", "config", #"{"config":"AQID"}"#), ("PUT", "push", #"{"token":"t"}"#),
        ("DELETE", "push", ""), ("POST", "receipts", #"{"to":"bob","id":"m","kind":"read"}"#),
        (
            "POST", "calls",
            #"{"callId":"c","call":"x","to":"bob","device":"d","type":"sdpOffer","seq":0,"payload":{"a":[1]}}"#
        ),
        ("GET", "calls?device=d&after=1&wait=2", ""), ("POST", "registrations", #"{"registration":"AQID"}"#),
        ("POST", "blobs", #"{"blob":"AQID"}"#), ("GET", "blobs/0123456789abcdef", ""), ("DELETE", "blobs/a%20b", ""),
        ("GET", "relays/" + String(repeating: "0a", count: 32) + "?account=bob&device=ab", ""),
        ("GET", "accounts/bob/devices", ""), ("GET", "accounts/alice/config", ""), ("POST", "accounts/bob/bundles", ""),
    ]

    private static func call(_ input: inout FormInput) throws {
        var call = calls[input.byte() % calls.count]
        var path = ControlRoute.prefix + "v1/" + call.path
        switch input.byte() % 4 {
        case 0: path = input.changed(path)
        case 1:
            call.method = ControlRoute.methods[input.byte() % 4]
            call.body = input.changed(calls[input.byte() % calls.count].body)
        default: call.body = input.changed(call.body)
        }
        let caller = try caller()
        let before = caller.device
        let step = caller.begin(call.method, path[...], ByteBuffer(string: call.body), Timestamp(monotonic: 0, wall: 0))
        try demand(caller.device == before && before == FormDevice.all[0].id, "a call changes who has proven a device")
        switch step {
        case .answer(let answer):
            try demand((200..<600).contains(answer.status), "an answer without a status")
            let document = try? JSONDocument(ByteBuffer(bytes: answer.body.bytes))
            try demand(document.map { $0.kind($0.root) == .object } ?? false, "an answer that is no JSON")
        case .submit(.mail(let job), let call):
            try demand(job.account == account && job.device == caller.device, "a job of another")
            try check(job.request, call)
        case .submit(.directory(let job), _): try demand(job.account == account, "a job of another")
        case .submit(.callRelay(let job), _):
            try demand(job.device.account == account, "a job of another")
            guard case .post(let message) = job.request else { return }
            try demand(message.to != account && message.kind != .answered, "a message that only the relay makes")
            let size = message.payload?.bytes.count ?? 0
            try demand(size == message.size && size <= call.body.utf8.count, "a payload of another size")
        case .submit(.challenge, _): break
        case .submit: throw FormFinding(description: "a job that no call has")
        case .relay(let call): try demand(call.session.count == RelayCall.sessionSize, "a session of another length")
        case .socket(let device): try demand(device == caller.device, "a WebSocket of another device")
        }
    }

    private static func check(_ request: MailJob.Request, _ call: ControlCall) throws {
        switch request {
        case .post(let id, let recipients, let body):
            try demand((1...Mailboxes.idLimit).contains(id.utf8.count), "an id over its limit")
            try demand((1...Mailboxes.recipientLimit).contains(recipients.count), "too many recipients")
            try demand(Set(recipients.map(\.device)).count == recipients.count, "a device twice")
            try demand(recipients.allSatisfy { $0.content.count <= Mailboxes.contentLimit }, "a long message")
            try demand(body.count <= Mailboxes.bodyLimit, "a long body")
        case .fetch(_, let waits): try demand(!waits || call.wait > 0, "a call that waits for no time")
        case .register(let bytes): try demand(bytes.count <= Mailboxes.registrationBytes, "a long registration")
        case .publish(let bytes): try demand(bytes.count <= PublishedBlobs.sizeLimit, "a long blob")
        case .publishConfig(let bytes): try demand(bytes.count <= PublishedConfigs.sizeLimit, "long keys")
        case .setPushToken(let token):
            try demand(token.map { (1...PushTokens.sizeLimit).contains($0.utf8.count) } ?? true, "a long token")
        case .receipt(let kind, _, _): try demand(kind == .read || kind == .received, "another receipt")
        case .acknowledge, .read, .remove, .readConfig: break
        case .dropPushToken: throw FormFinding(description: "a job that no call has")
        }
        try demand(call.wait <= 25_000_000_000, "a call that waits too long")
    }

    /// A path of a call belongs to the gateway, however it is written.
    private static func route(_ input: inout FormInput) throws {
        let call = calls[input.byte() % calls.count]
        let genuine = ControlRoute.prefix + "v1/" + (call.path.split(separator: "?").first ?? "")
        try demand(ControlRoute(call.method, genuine[...]) != nil, "a call that is none")
        let path = input.changed(genuine)
        guard let route = ControlRoute(call.method, path[...]) else { return }
        try demand(ControlRoute.isReserved(path[...]), "a call that the backend gets")
        if case .relay(let session) = route { try demand(session.count == 32, "a session of another length") }
    }

    private static func body(_ input: inout FormInput) throws {
        let genuine = #"{"a":"AQID","n":7,"d":"00000000000000ab","l":[{"x":"y"}],"u":"bob","t":"\u00e9"}"#
        let bytes = input.changed(Array(genuine.utf8))
        guard let body = try? ControlBody(ByteBuffer(bytes: bytes)) else { return }
        for name in ["a", "n", "d", "l", "u", "t"] {
            if let read = try? body.bytes(name) { try demand(read.count <= bytes.count, "more bytes than there are") }
            if let text = try? body.text(name, limit: 3) {
                try demand((1...3).contains(text.utf8.count), "a long text")
            }
            if let number = try? body.number(name) { try demand(number <= UInt64(Int.max), "a large number") }
            if let account = try? body.account(name) { try demand(!account.name.isEmpty, "an account without a name") }
            _ = try? body.device(name)
            if let objects = try? body.objects(name, limit: 2) {
                try demand((1...2).contains(objects.count), "objects")
            }
            if let fragment = body.fragment(name) {
                let again = try? JSONDocument(ByteBuffer(bytes: fragment.bytes))
                try demand(again != nil && fragment.bytes.count <= bytes.count, "a part that is no JSON")
            }
        }
    }

    private static func inBand(_ input: inout FormInput) throws {
        let genuine = #"{"pawl":{"id":7,"method":"PUT","path":"/_pawl/v1/device","body":{"message":"AQID"}}}"#
        let bytes = input.changed(Array(genuine.utf8))
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)) else { return }
        let call = InBandCall(document)
        try demand((call != nil) == InBandCall.isReserved(document), "a message that is a call and is none")
        guard let call else { return }
        try demand(call.size <= bytes.count, "a call holds more than has come")
        if document.hasDuplicateNames { try demand(call.method.isEmpty && call.path.isEmpty, "an ambiguous call") }
        let answer = try? JSONDocument(call.answer(ControlAnswer(.malformed)))
        try demand(answer.map(InBandCall.isReserved) ?? false, "an answer that is no JSON")
    }

    // MARK: Relays

    private static func relayCall(_ input: inout FormInput) -> RelayCall {
        RelayCall(
            session: [UInt8](repeating: UInt8(input.byte() % 2), count: RelayCall.sessionSize),
            own: DeviceID(UInt64(input.byte() % 3)), of: .services("person\(input.byte() % 2)"),
            by: Credential().digest, other: DeviceID(UInt64(input.byte() % 3)),
            of: .services("person\(input.byte() % 2)"))
    }

    /// Devices come and go. Two meet, once, if they name each other with the same session, and get the two sides of one link.
    private static func relays(_ input: inout FormInput) throws {
        let (table, limit) = (RelayTable(), 1 + input.byte() % 4)
        let met = Mutex<[(connection: ConnectionID, link: RelayLink, side: RelayLink.Side)]>([])
        var joined: [ConnectionID: RelayCall] = [:]
        var waiting: Set<ConnectionID> = []
        for _ in 0..<input.byte() % 32 {
            let connection = ConnectionID(UInt64(input.byte() % 8))
            guard input.byte() % 4 > 0 else {
                table.leave(connection)
                joined[connection] = nil
                waiting.remove(connection)
                continue
            }
            let call = relayCall(&input)
            let other = waiting.first { id in
                joined[id].map {
                    $0.session == call.session && ($0.own, $0.other) == (call.other, call.own)
                        && ($0.account, $0.otherAccount) == (call.otherAccount, call.account)
                } ?? false
            }
            let isTaken = joined[connection] != nil || waiting.contains { joined[$0] == call }
            let isFull = joined.values.count { $0.account == call.account } >= limit
            let fault = table.join(call, as: connection, limit: limit) { link, side in
                met.withLock { $0.append((connection, link, side)) }
            }
            let links = met.withLock { met in
                defer { met = [] }
                return met
            }
            guard !isFull, !isTaken else {
                try demand(fault != nil && links.isEmpty, "a device waits that may not")
                continue
            }
            try demand(fault == nil, "a device may not wait")
            joined[connection] = call
            guard let other else {
                try demand(links.isEmpty, "a device meets another one")
                waiting.insert(connection)
                continue
            }
            waiting.remove(other)
            try demand(Set(links.map(\.connection)) == [other, connection] && links.count == 2, "others have met")
            try demand(links[0].link === links[1].link && links[0].side == links[1].side.other, "two have no link")
        }
        try demand(table.count == joined.count, "connections are counted wrongly")
        for connection in joined.keys { table.leave(connection) }
        try demand(table.count == 0, "a connection that has left is counted")
    }

    /// Over any time, a relay passes at most the bytes of that time and of one second more.
    private static func allowance(_ input: inout FormInput) throws {
        let (rate, start) = (Int64(1 + input.number()), Int64(input.number()))
        var (allowance, now, sent) = (RelayAllowance(bytesPerSecond: Int(rate), now: start), start, Int64(0))
        for _ in 0..<input.byte() % 16 {
            now += Int64(input.number()) << Int64(input.byte() % 32)
            let count = input.number()
            let pause = allowance.use(count, now: now)
            sent += Int64(count)
            try demand(pause >= 0, "a pause before now")
            now += pause
            let (seconds, part) = (now - start).quotientAndRemainder(dividingBy: 1_000_000_000)
            try demand(sent <= rate * (seconds + 1) + rate * part / 1_000_000_000 + 1, "more bytes than are allowed")
        }
    }

    // MARK: Files

    private static let key = SealedFile.Key(
        SealedFile.Header(key: MessageID(7), prefix: [1, 2, 3, 4, 5, 6, 0]),
        ContentKey(
            message: MessageID(7), digest: EnvelopeDigest(of: []), expiresAt: 0, bytes: [UInt8](repeating: 9, count: 32)
        ))
    private static let plain: [[UInt8]] = [0, 1, 300, SealedFile.chunkSize, SealedFile.chunkSize + 1].map { size in
        var random = SeededGenerator(seed: 8)
        return random.bytes(size)
    }
    private static let sealed: [Result<[UInt8], any Error>] = plain.map { plain in
        Result {
            var sealer = SealedFile.Sealer(key, SealedFile.Description(type: "a/b", name: "c"))
            var output: [UInt8] = []
            try sealer.begin(into: &output)
            try plain.withUnsafeBytes { try sealer.seal($0, into: &output) }
            try sealer.end(into: &output)
            return output
        }
    }

    /// What is opened is the beginning of what was sealed, and is whole only if nothing was altered.
    private static func sealedFile(_ input: inout FormInput) throws {
        // Large files take long, so there are few.
        let choice = input.byte()
        let which = choice >= 250 ? 3 + choice % 2 : choice % 3
        let (plain, genuine) = (plain[which], try sealed[which].get())
        try demand(SealedFile.sealedSize(of: plain.count) == genuine.count, "another size")
        try demand(SealedFile.size(ofSealed: genuine.count) == plain.count, "another size")
        var range: Range<Int>?
        if input.byte() % 3 == 0, !plain.isEmpty {
            let start = input.number() % plain.count
            range = start..<min(plain.count, start + 1 + input.byte())
        }
        let expected = Array(plain[range ?? 0..<plain.count])
        // A large file byte by byte takes a second.
        let size = (which > 2 ? 1000 : 1) + input.number()
        let bytes = input.changed(genuine)
        func open(_ size: Int) throws -> (output: [UInt8], isWhole: Bool) {
            var (opener, output, isWhole) = (SealedFile.Opener(key, range: range), [UInt8](), true)
            do {
                try FormInput.divide(bytes, size) { piece in
                    try piece.withUnsafeBytes { try opener.open($0, into: &output) }
                    return true
                }
                try opener.end(into: &output)
            } catch {
                isWhole = false
            }
            try demand(expected.starts(with: output), "bytes that nobody has sealed are opened")
            try demand(!isWhole || output == expected, "a file is cut")
            return (output, isWhole)
        }
        let result = try open(size)
        try demand(try open(max(bytes.count, 1)) == result, "a file in pieces is another file")
        if bytes == genuine { try demand(result.isWhole, "a genuine file is refused") }
        if let range, range.upperBound < plain.count { return }
        let start = SealedFile.beginningSize
        if bytes.dropFirst(start) != genuine.dropFirst(start), range == nil {
            try demand(!result.isWhole, "an altered file is opened")
        }
        let description = try? SealedFile.Opener(key).description(in: bytes)
        if let description {
            try demand(description == SealedFile.Description(type: "a/b", name: "c"), "another description")
        }
    }

    private static func fileHeader(_ input: inout FormInput) throws {
        let bytes = input.changed(key.header.bytes)
        let isSealed = bytes.withUnsafeBytes { SealedFile.isSealed($0) }
        if let header = try? SealedFile.Header(bytes) {
            try demand(isSealed && header.bytes == Array(bytes.prefix(SealedFile.headerSize)), "another header")
            try demand(header.bytes.count == SealedFile.headerSize, "a header of another length")
            try demand(header.file(3).key == header.key && header.file(3).bytes.last == 3, "another file of the form")
        }
        let size = bytes.prefix(8).reduce(0) { $0 << 8 | Int($1) } >> 8
        if let sealed = SealedFile.sealedSize(of: size) {
            try demand(SealedFile.size(ofSealed: sealed) == size, "a size is read as another")
        }
        if let plain = SealedFile.size(ofSealed: size) {
            try demand(SealedFile.sealedSize(of: plain) == size, "a size is read as another")
        }
    }
}
