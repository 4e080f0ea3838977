import CallSignalling
import DoubleRatchet
import Foundation
import PeerConnection
import Protection
import RequestQueue
import TestKit

@testable import Devices
@testable import Envelope
@testable import Messenger
@testable import PawlMessenger

/// What messengers send each other inside envelopes and what servers and other clients hand them: contents of chats,
/// files, groups, the history, signals about calls and direct connections, frames of plaintext channels, contact cards
/// and the gateway's answers; and what their stores hand them: rows, and calls that wait in the queue.
enum MessengerForms {
    static let readers: [FormProgramme.Reader] = [
        { try content(&$0) }, { try file(&$0) }, { try fileParts(&$0) }, { try history(&$0) }, { try group(&$0) },
        { try fork(&$0) }, { try reference(&$0) }, { try parts(&$0) }, { try row(&$0) }, { try call(&$0) },
        { try peerSignal(&$0) }, { try channel(&$0) }, { try card(&$0) }, { try page(&$0) }, { try answers(&$0) },
        { try queuedCall(&$0) },
    ]

    // MARK: Contents

    private static let reference = MessageReference(device: DeviceID(0xAB), message: MessageID(0xCD))

    private static func content(_ input: inout FormInput) throws {
        let ids = (0...input.byte() % 16).map { MessageID(UInt64($0)) }
        var act: ChatContent.Act =
            switch input.byte() % 9 {
            case 0: .text
            case 1: .edit(reference)
            case 2: .delete(reference)
            case 3: .react(reference, with: "\u{1F44D}")
            case 4: .react(reference, with: nil)
            case 5: .received(ids)
            case 6: .read(ids)
            case 7: .signal(kind: "call")
            default: .history
            }
        if input.byte() % 8 == 7 { act = .group }
        var text = ""
        switch act {
        case .text, .edit, .signal, .history: text = input.text()
        default: break
        }
        var genuine = ChatContent(act, text: text, writtenAt: Int64(input.number()))
        if input.byte() % 2 == 0 { genuine.recipient = input.text() }
        if input.byte() % 2 == 0 { genuine.timer = Int64(input.number()) }
        if act == .group { genuine.group = groupReference }
        try demand((try? ChatContent(genuine.body, now: 0)) == genuine, "a content is read as another")
        let bytes = input.changed(genuine.body.bytes(paddedTo: 40))
        guard let body = try? Body(bytes), let read = try? ChatContent(body, now: 5) else { return }
        let written = read.body
        try demand(written.text.count <= bytes.count, "a text is longer than its message")
        // As rows keep it: the tags may be longer than what has come.
        try demand((try? ChatContent(stored: written)) == read, "a content is written as another")
        if written.tags.count <= ChatContent.tagLimit {
            try demand((try? ChatContent(Body(written.bytes(paddedTo: 0)), now: 6)) == read, "a content changes again")
        }
    }

    // MARK: Files

    private static func fileReference(size: UInt64 = 5) -> FileReference? {
        FileReference(
            size: size, digest: [UInt8](repeating: 1, count: 32), key: [UInt8](repeating: 2, count: 32),
            name: "a b.txt",
            type: "text/plain", parts: (0..<FileReference.partCount(of: size)).map { "part\($0)" })
    }

    private static func decoded(_ text: String) -> [UInt8] { Base64.decode(text.utf8) ?? [] }

    private static func file(_ input: inout FormInput) throws {
        guard let genuine = fileReference(size: UInt64(input.byte() % 3) * 100_000) else {
            throw FormFinding(description: "no reference")
        }
        try demand((try? FileReference(genuine.text)) == genuine, "a reference is read as another")
        let isText = input.byte() % 4 == 3
        let text = isText ? input.changed(genuine.text) : Base64.text(input.changed(decoded(genuine.text)))
        guard let read = try? FileReference(text) else { return }
        try demand(Array(read.text.utf8) == Array(text.utf8), "a reference has two forms")
        try demand(read.parts.count <= FileReference.partLimit && !read.name.contains("/"), "a file beyond its limits")
        try demand(read.size <= FileReference.sizeLimit, "a large file")
        let sizes = read.parts.indices.map { read.size(ofPart: $0) }
        try demand(UInt64(sizes.reduce(0, +)) == read.size && sizes.allSatisfy { $0 >= 0 }, "parts of another size")
    }

    /// What is opened is what was sealed, or the opener does not say that it is complete.
    private static func fileParts(_ input: inout FormInput) throws {
        let plain = [UInt8](repeating: UInt8(input.byte()), count: input.byte())
        let key = [UInt8](repeating: 2, count: 32)
        var sealer = FileSealer(key: key, size: UInt64(plain.count))
        let sealed = try sealer.seal(plain)
        guard
            let reference = FileReference(
                size: UInt64(plain.count), digest: sealer.digest, key: key, name: "a", type: "b", parts: ["c"])
        else { throw FormFinding(description: "no reference") }
        let part = input.changed(sealed)
        var opener = FileOpener(reference)
        let opened = try? opener.open(part)
        try demand((opened == plain) == (part == sealed) && opener.isComplete == (part == sealed), "an altered file")
        try demand((try? opener.open(part)) == nil || part != sealed, "a part too many")
    }

    // MARK: History

    private static func history(_ input: inout FormInput) throws {
        var cursor = HistoryCursor()
        (cursor.name, cursor.before, cursor.mark) = (input.text(), UInt64(input.number()), 9)
        var part = HistoryPart(asked: cursor)
        if input.byte() % 2 == 0 { part.next = cursor.beginning(.messages) }
        part.items = (0..<input.byte() % 3).map { HistoryItem(.message, sequence: UInt64($0), [1, 2, 3]) }
        let genuine: HistoryMessage = input.byte() % 4 == 0 ? .wanted(cursor) : .part(part)
        try demand((try? HistoryMessage(genuine.text)) == genuine, "a message is read as another")
        let text = Base64.text(input.changed(decoded(genuine.text)))
        guard let read = try? HistoryMessage(text) else { return }
        try demand(Array(read.text.utf8) == Array(text.utf8), "a message has two forms")
        if case .part(let part) = read {
            try demand(part.items.allSatisfy { $0.total <= HistoryItem.sizeLimit }, "an item over its limit")
            try demand(part.items.reduce(0) { $0 + $1.bytes.count } <= text.utf8.count, "more than has come")
        }
    }

    // MARK: Groups

    private static let accounts = ["alice", "bob", "carol", "dave"].map { AccountID.services($0) }
    private static let reference32 = [UInt8](repeating: 4, count: 32)
    private static let chain: GroupChain = {
        let content = GroupContent(
            name: "group", metadata: [1, 2],
            members: zip(accounts, [GroupRole.owner, .moderator, .moderator, .member]).map { GroupMember($0, $1) })
        guard
            let chain = GroupChain(
                content, random: 3, by: accounts[0], FormDevice.all[0].id, FormDevice.all[0].identity)
        else { preconditionFailure("the group is valid") }
        return chain
    }()
    private static let groupReference = GroupReference(
        group: chain.id, digest: chain.last.digest, key: reference32, blob: GroupReference.blob(at: DeviceID(7)))

    /// The group with changes that its members make.
    private static func grown(_ chain: GroupChain, _ input: inout FormInput, _ changes: Int) -> GroupChain {
        var chain = chain
        for _ in 0..<changes {
            let place = input.byte() % 4
            var content = chain.content
            switch input.byte() % 4 {
            case 0: content.name = input.text()
            case 1: content.members.removeAll { $0.account == accounts[place] }
            case 2:
                content = GroupContent(
                    name: content.name, metadata: content.metadata,
                    members: content.members + [GroupMember(.services("new\(input.byte() % 4)"))])
            default: content.metadata = input.take(2)
            }
            let signer = input.byte() % 4
            let device = FormDevice.all[signer]
            chain =
                chain.adding(
                    content, random: UInt64(input.byte()), by: accounts[signer], device.id, device.identity) ?? chain
        }
        return chain
    }

    private static func group(_ input: inout FormInput) throws {
        let genuine = grown(chain, &input, input.byte() % 4)
        try demand((try? GroupChain(genuine.bytes)) == genuine, "a group is read as another")
        let isState = input.byte() % 3 == 0
        if isState {
            let state = GroupState(chain: genuine, reference: groupReference)
            let bytes = input.changed(state.bytes)
            guard let read = try? GroupState(bytes) else { return }
            return try demand(read.bytes == bytes && read.chain.id == read.reference.group, "a state in other bytes")
        }
        let bytes = input.changed(genuine.bytes)
        guard let read = try? GroupChain(bytes) else { return }
        try demand(read.bytes == bytes, "a group is written in other bytes")
        try demand(read.continues(read) && read.versions.allSatisfy(\.content.isValid), "a group that is not valid")
        for (number, version) in read.versions.enumerated() {
            try demand(read.version(version.digest) != nil, "a version is not found")
            guard number < genuine.versions.count, genuine.versions[number] != version else { continue }
            let isSigned = FormDevice.all.contains { read.isSigned(number, by: $0.identity.publicKey) }
            try demand(!isSigned || read.common(with: genuine) < number, "an altered version is signed")
        }
    }

    /// Two branches of a group: both sides decide alike.
    private static func fork(_ input: inout FormInput) throws {
        let common = grown(chain, &input, input.byte() % 3)
        let (one, other) = (
            grown(common, &input, 1 + input.byte() % 3), grown(common, &input, 1 + input.byte() % 3)
        )
        let removed = FormDevice.all[input.byte() % 4].id
        let isAnyRemoved = input.byte() % 2 == 0
        func isListed(_ version: GroupVersion) -> Bool { !isAnyRemoved || version.device != removed }
        guard !one.continues(other), !other.continues(one) else { return }
        switch (one.fork(with: other, isListed: isListed), other.fork(with: one, isListed: isListed)) {
        case (.taken, .kept), (.kept, .taken), (.undecided, .undecided): break
        case let result: throw FormFinding(description: "two sides decide differently: \(result)")
        }
    }

    private static func reference(_ input: inout FormInput) throws {
        let bytes = input.changed(groupReference.bytes)
        guard let read = try? GroupReference(bytes) else { return }
        try demand(read.bytes == bytes, "a reference is written in other bytes")
        if let holder = read.holder { try demand(GroupReference.blob(at: holder) == read.blob, "another holder") }
        if let id = GroupID(String(decoding: bytes, as: UTF8.self)) { try demand(id.bytes.count == 16, "another id") }
    }

    // MARK: Signals

    /// Parts of several devices, in any order: bounded, and nothing is mixed.
    private static func parts(_ input: inout FormInput) throws {
        let unit = ["x", "\u{E9}", "e\u{301}", "\r\n"][input.byte() % 4]
        let jobs = (0..<2).map { number in
            SignalJob(
                to: "bob", kind: "call",
                text: String(number) + String(repeating: unit, count: 1400 + input.number() % 4000),
                lifetime: 1)
        }
        let sent = jobs.enumerated().map { SignalParts.parts(of: $1, id: UInt32($0)) }
        var collected = SignalParts()
        func received(_ kind: String, _ text: String, _ device: Int) -> ReceivedSignal {
            ReceivedSignal(user: "bob", device: DeviceID(UInt64(device)), kind: kind, text: text, writtenAt: 1)
        }
        if input.byte() % 2 == 0 {
            // Both at once are both whole.
            var whole: [String] = []
            for place in 0..<max(sent[0].count, sent[1].count) {
                for device in 0..<2 where place < sent[device].count {
                    let part = sent[device][place]
                    if let signal = collected.take(received(part.kind, part.text, device)) { whole.append(signal.text) }
                }
            }
            return try demand(Set(whole) == Set(jobs.map(\.text)), "signals are joined as others")
        }
        for _ in 0..<24 where !input.isAtEnd {
            let (job, device) = (input.byte() % 2, input.byte() % 70)
            var text = sent[job][input.byte() % sent[job].count].text
            if input.byte() % 4 == 0 { text = "\(input.byte() % 3) \(input.byte() % 3) 2 call\n" + input.text() }
            guard let whole = collected.take(received(SignalParts.kind, text, device)) else { continue }
            try demand(
                whole.kind != SignalParts.kind && whole.text.utf8.count <= ChatContent.textLimit, "a long signal")
        }
    }

    private static let phone = Call(
        id: UUID(uuid: (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)), sharedCommunicationId: "#room 7",
        sender: .init(secretName: "alice", nickname: "Alice", deviceId: "1"),
        recipients: [.init(secretName: "bob", nickname: "Bob")], createdAt: Date(timeIntervalSince1970: 1_700_000_000),
        supportsVideo: true, sharedMessageId: "m")

    private static func envelope(_ kind: CallEnvelope.Kind) -> CallEnvelope {
        var payload = CallEnvelope.Payload()
        switch kind {
        case .sdpOffer: (payload.call, payload.sdp) = (phone, SessionDescription(sdp: "v=0\r\n", type: .offer))
        case .sdpAnswer: (payload.call, payload.sdp) = (phone, SessionDescription(sdp: "v=0\r\n", type: .answer))
        case .iceCandidate:
            payload.candidate = IceCandidate(id: 3, sdp: "candidate:1 1 UDP", sdpMLineIndex: 0, sdpMid: "0")
        case .ciphertext:
            (payload.call, payload.connectionId, payload.ciphertext) = (phone, "c/1", Data([0, 255, 16]))
        case .groupControl: payload.control = .participants([phone.sender], version: 2)
        case .answered: payload.caller = "alice"
        case .end: payload.endState = "userInitiated"
        }
        return CallEnvelope(
            callId: phone.sharedCommunicationId, call: phone.id, from: "alice", to: "bob", kind, (17, 4), payload)
    }

    private static func call(_ input: inout FormInput) throws {
        let kinds = CallEnvelope.Kind.allCases
        let genuine = envelope(kinds[input.byte() % kinds.count])
        let text = input.changed(try genuine.text())
        guard let read = try? CallEnvelope(text: text) else { return }
        try demand(read.route != nil && !read.from.isEmpty && !read.to.isEmpty, "an envelope without a route")
        let written = try read.text()
        let again = try? CallEnvelope(text: written)
        try demand(again == read || written.utf8.count > ChatContent.textLimit, "an envelope is written as another")
        let (kind, payload) = CallEnvelope.parts(of: read.content)
        try demand(kind == read.type, "a message of another kind")
        try demand(kind == .answered || kind == .end || payload == read.payload, "a message with another payload")
    }

    private static func peerSignal(_ input: inout FormInput) throws {
        guard let id = PeerConnectionID([UInt8](repeating: 1, count: 16)) else { return }
        let isPacket = input.byte() % 3 > 0
        let genuine = P2PSignal(
            connection: id, transport: "ipv6-tcp",
            kind: isPacket
                ? .packet(
                    text: input.text(), metadata: P2PMetadata(json: #"{"a":[1]}"#),
                    secret: input.byte() % 2 == 0 ? nil : [UInt8](repeating: 2, count: 32)) : .refused,
            instead: input.byte() % 2 == 0 ? nil : id)
        try demand(P2PSignal(genuine.text) == genuine, "a signal is read as another")
        guard let read = P2PSignal(input.changed(genuine.text)) else { return }
        try demand(P2PSignal(read.text) == read, "a signal is written as another")
        try demand(P2PSignal.isTransportName(read.transport), "a transport without a name")
        if case .packet(let text, let metadata, let secret) = read.kind {
            try demand(secret?.count ?? 32 == 32, "a secret of another length")
            let longest = max(text.utf8.count, metadata.json.utf8.count)
            try demand(longest <= P2PSettings.magicPacketLimit, "a long packet")
        }
    }

    // MARK: Plaintext channels and cards

    private static func channel(_ input: inout FormInput) throws {
        let bytes = input.take(input.byte() % 40)
        let genuine: ChannelFrame =
            input.byte() % 2 == 0
            ? .message(to: DeviceID(7), MessageID(8), bytes) : .keys(bytes, asksForKeys: input.byte() % 2 == 0)
        try demand((try? ChannelFrame(genuine.bytes)) == genuine, "a frame is read as another")
        try demand(ChannelFrame.parse(genuine.text) == .frame(genuine), "a text is read as another")
        try demand(
            ChannelFrame.parse(marked: genuine.markedText) == .frame(genuine), "a marked text is read as another")
        switch input.byte() % 3 {
        case 0:
            let bytes = input.changed(genuine.bytes)
            guard let read = try? ChannelFrame(bytes) else { return }
            try demand(read.bytes == bytes, "a frame is written in other bytes")
        case 1:
            let text = input.changed(genuine.text)
            switch ChannelFrame.parse(text) {
            case .frame(let read): try demand(Array(read.text.utf8) == Array(text.utf8), "a frame has two texts")
            case .text(let shown, let hasHint):
                try demand(Array(shown.utf8) == Array(text.utf8) && !hasHint, "a text is shown as another")
            case .damaged: try demand(!text.contains(" "), "the words of a person are damaged")
            }
        default:
            let text = input.changed(input.byte() % 2 == 0 ? genuine.markedText : "hi" + ChannelFrame.hint)
            switch ChannelFrame.parse(marked: text) {
            case .frame(let read): try demand(Array(read.markedText.utf8) == Array(text.utf8), "a frame has two texts")
            case .text(let shown, let hasHint):
                let whole = shown + (hasHint ? ChannelFrame.hint : "")
                try demand(Array(whole.utf8) == Array(text.utf8), "a text is shown as another")
            case .damaged: break
            }
        }
    }

    /// A card with the keys that the person has published.
    private static func card(_ input: inout FormInput) throws {
        let device = FormDevice.all[0]
        let keys = PublishedKeys(
            deviceList: device.list,
            devices: [
                DeviceKeys(
                    device.bundle, of: device.id, root: device.list.root, account: "a", signedBy: device.identity)
            ])
        let form = try CardForm(name: "a", root: device.list.root, keys: input.byte() % 2 == 0 ? keys.bytes : [])
        try demand((try? ContactCard(bytes: form.bytes))?.bytes == form.bytes, "a card is refused")
        guard input.byte() % 2 == 0 else {
            let text = input.changed(form.uri)
            guard let read = try? ContactCard(uri: text) else { return }
            return try demand(Array(read.uri.utf8) == Array(text.utf8), "a card has two URIs")
        }
        // The keys in a card are those of its name.
        let name = input.text()
        guard let other = try? CardForm(name: name, root: device.list.root, keys: input.changed(form.keys)),
            let read = try? ContactCard(bytes: other.bytes)
        else { return }
        try demand(read.bytes == other.bytes, "a card is written in other bytes")
        guard !other.keys.isEmpty else { return }
        try demand(read.username.raw == "a" && other.keys == keys.bytes, "keys of another are accepted")
    }

    // MARK: The gateway's answers

    private static func page(_ input: inout FormInput) throws {
        let genuine =
            #"{"messages":[{"sequence":3,"kind":"message","from":"bob","at":1,"device":"00000000000000ab","id":"m d","message":"AQID"},"#
            + #"{"sequence":4,"kind":"read","from":"bob","device":"00000000000000ab","id":"m"},"#
            + #"{"sequence":9,"kind":"registration","from":"a","message":"AQ"}],"more":false,"one_time":3}"#
        let after = UInt64(input.byte())
        let bytes = input.changed(Array(genuine.utf8))
        guard let page = try? GatewayBody.page(bytes, after: after) else { return }
        var last = after
        for entry in page.entries {
            try demand(entry.sequence > last, "entries out of order")
            last = entry.sequence
            guard case .message(let envelope, _, _, _, _) = entry.event else { continue }
            try demand(!envelope.isEmpty && envelope.count <= bytes.count, "an envelope of other bytes")
        }
    }

    private static func answers(_ input: inout FormInput) throws {
        let genuine = [
            #"{"account":"a","challenge":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#,
            #"{"account":"a","device":null,"one_time":3}"#, #"{"id":"0123456789abcdef0123456789abcdef"}"#,
            #"{"error":"pawl_full","message":"The storage is full."}"#, #"{"config":"AQID"}"#, #"{"blob":"AQID"}"#,
        ]
        let which = input.byte() % genuine.count
        let bytes = input.changed(Array(genuine[which].utf8))
        if let answer = try? GatewayBody.challenge(bytes) {
            try demand(answer.nonce.count == 32 && answer.account.utf8.count <= 1024, "another challenge")
        }
        _ = try? GatewayBody.me(bytes)
        if let id = try? GatewayBody.blobID(bytes) { try demand(GatewayBody.isBlobID(id), "another id") }
        let refusal = GatewayBody.refusal(bytes)
        try demand(refusal.code.count <= 64 && refusal.words.count <= 256, "a long refusal")
        if let config = try? GatewayBody.config(in: bytes) {
            try demand(
                (try? GatewayBody.config(in: GatewayBody.config(config.bytes))) == config, "another configuration")
        }
        if let blob = try? GatewayBody.blob(in: bytes) {
            try demand((try? GatewayBody.blob(in: GatewayBody.blob(blob))) == blob, "another blob")
        }
        if let answer = try? GatewayBody.devices(bytes) {
            try demand(answer.isPublished.count <= DeviceList.deviceLimit, "too many devices")
        }
        _ = try? GatewayBody.oneTimePreKeys(bytes)
    }

    // MARK: Stores

    private static func row(_ input: inout FormInput) throws {
        let isGroup = input.byte() % 2 == 0
        let chat = isGroup ? chain.id.chat : AccountID.services("bob")
        var message = ChatMessage(
            chat: chat, sequence: 3, reference: reference, isOwn: input.byte() % 2 == 0, text: input.text(),
            writtenAt: Int64(input.number()), storedAt: 7, state: .sent, protection: .device)
        message.react(by: accounts[0], with: "x")
        if isGroup { message.note(.read, of: accounts[1]) { _ in true } }
        if input.byte() % 2 == 0 { message.readers = [DeviceID(7), DeviceID(UInt64(input.byte()))] }
        if input.byte() % 2 == 0 { message.note(ChatChange(.reaction, reference)) }
        try demand((try? ChatMessage(chat: chat, sequence: 3, bytes: message.bytes)) == message, "another row")
        guard let read = try? ChatMessage(chat: chat, sequence: 3, bytes: input.changed(message.bytes)) else { return }
        try demand(
            (try? ChatMessage(chat: chat, sequence: 3, bytes: read.bytes)) == read, "a row is written as another")
        let summary = input.take(21)
        if let read = try? ChatSummary(chat: chat, bytes: summary) {
            try demand(read.bytes == summary, "a summary is written in other bytes")
        }
        if let read = try? HistoryState(message.bytes) { try demand(read.bytes == message.bytes, "another state") }
    }

    private static func stored(_ new: NewRequest) -> QueuedRequest {
        QueuedRequest(
            id: 1, token: RequestToken(number: 1), tenant: new.tenant, lane: new.lane, payload: new.payload,
            creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "", coalescingKey: nil, timestamp: 0)
    }

    private static func queuedCall(_ input: inout FormInput) throws {
        // A name as apps write it has no white space.
        let user = Username(input.text()).raw
        let bytes = input.take(input.byte() % 20)
        let devices = (0...input.byte() % 3).map { DeviceID(UInt64($0)) }
        let genuine: QueuedCall =
            switch input.byte() % 5 {
            case 0:
                .envelope(
                    bytes, to: devices.map { Attempt.Recipient(user: user, device: $0) },
                    message: MessageID(7), sequence: input.byte() % 2 == 0 ? nil : UInt64(input.number()),
                    expires: input.byte() % 2 == 0 ? nil : Int64(input.number()))
            case 1: .plaintext(user: user, message: MessageID(7))
            case 2: .receipt(MessageID(7), user: user, isRead: input.byte() % 2 == 0)
            case 3: .publish
            default: .register(bytes)
            }
        var request = genuine.request(tenant: "a", lane: nil)
        try demand(QueuedCall(stored(request)) == genuine, "a call is read as another")
        let tags = ["send", "plain", "read", "received", "publish", "register", request.config.tag]
        request.config.tag = tags[input.byte() % tags.count]
        if case .text(let path)? = request.config.path.segments.first {
            request.config.path = APIRequestPath([.text(input.changed(path))])
        }
        guard let read = QueuedCall(stored(request)) else { return }
        try demand(QueuedCall(stored(read.request(tenant: "a", lane: nil))) == read, "a call is written as another")
        try demand(read.reservedIDs == (read.devices.count > 1 ? UInt64(read.devices.count) : 0), "other ids")
    }
}
