import Devices
import DoubleRatchet
import Envelope
import Foundation
import Protection
import TestKit
import TestThreads
import Testing

@testable import Messenger
@testable import PawlMessenger

/// What messengers send, with a program that was written from the page.
@Suite(.blocking) struct WireMessengerTests {
    private static let theirID = DeviceID(0xFFEE_DDCC_BBAA_9988)
    private static let reference = MessageReference(device: DeviceID(0xA), message: MessageID(0xB))
    private static let name = "00000000000000" + "0a" + "00000000000000" + "0b"

    // MARK: Contents

    /// Contents, whether people see a text, and the tags besides the time.
    private static func contents(_ file: String, _ group: GroupReference) -> [(ChatContent, Bool, [String])] {
        func content(_ act: ChatContent.Act, _ text: String = "", to recipient: String? = nil, timer: Int64? = nil)
            -> ChatContent
        { ChatContent(act, text: text, writtenAt: 1_700_000_000_000, recipient: recipient, timer: timer) }
        var (inGroup, alone) = (content(.text, "hi"), content(.group))
        (inGroup.group, alone.group) = (group, group)
        var tag: [UInt8] = []
        Base64.encode(group.bytes[...], into: &tag)
        let groupTag = "group=" + String(decoding: tag, as: UTF8.self)
        return [
            (content(.text, "h\u{E9}llo"), true, []),
            (content(.text, "hi", to: "bob", timer: 60), true, ["to=Ym9i", "timer=60"]),
            (content(.file, file), false, ["file=1"]), (content(.edit(reference), "new"), true, ["edit=\(name)"]),
            (content(.delete(reference)), false, ["delete=\(name)"]),
            (content(.react(reference, with: "+1")), false, ["react=\(name)", "with=KzE"]),
            (content(.react(reference, with: nil)), false, ["react=\(name)"]),
            (
                content(.received([MessageID(1), MessageID(255)])), false,
                ["received=0000000000000001,00000000000000ff"]
            ), (content(.read([MessageID(1)])), false, ["read=0000000000000001"]),
            (content(.signal(kind: "call"), "{}", timer: 30), false, ["signal=call", "timer=30"]),
            (content(.history, "AQ"), false, ["history=1"]), (inGroup, true, [groupTag]), (alone, false, [groupTag]),
        ]
    }

    private func file() throws -> (FileReference, [UInt8], [UInt8]) {
        let device = WireDevice(1)
        let (data, key) = (device.random.bytes(FileReference.partSize + 70_000), device.random.bytes(32))
        var sealer = FileSealer(key: key, size: UInt64(data.count))
        for at in stride(from: 0, to: data.count, by: FileReference.partSize) {
            _ = try sealer.seal(Array(data[at..<min(at + FileReference.partSize, data.count)]))
        }
        let reference = FileReference(
            size: UInt64(data.count), digest: sealer.digest, key: key, name: "cat.png", type: "image/png",
            parts: ["one", "two"])
        return (try #require(reference), data, key)
    }

    @Test func contentsAreTheSame() throws {
        let (peer, file) = (try WirePeer(), try file().0.text)
        let group = GroupReference(
            group: GroupID([UInt8](repeating: 1, count: 16)), digest: [UInt8](repeating: 2, count: 32),
            key: [UInt8](repeating: 3, count: 32), blob: "abc")
        for (content, isSeen, tags) in Self.contents(file, group) {
            let all = (["at=1700000000000"] + tags).map { Array("+pawl/\($0)".utf8) }
            let bytes = content.body.bytes(paddedTo: Content.paddedLength(of: content.body.length))
            let words = [isSeen ? "1" : "0", Array(content.text.utf8).word]
            let sorted = all.sorted { $0.lexicographicallyPrecedes($1) }.map(\.word)
            #expect(try peer.ask("content_read", bytes) == words + sorted)
            let theirs = try WirePeer.bytes(
                try peer.ask("content_make", [Array(content.text.utf8)] + all as [[UInt8]])[0])
            #expect(try ChatContent(try Body(theirs), now: 0) == content)
        }
        // A sidecar's text.
        let plain = Body(tags: Array("+draft/x".utf8), text: Array("hi".utf8)).bytes(paddedTo: 0)
        #expect(try peer.ask("content_read", plain) == ["1", Array("hi".utf8).word])
    }

    @Test func longSignalsAreTheSame() throws {
        let peer = try WirePeer()
        let text = String(repeating: "0123456789", count: 330)
        let job = SignalJob(to: "bob", kind: "call", text: text, lifetime: 30)
        let parts = SignalParts.parts(of: job, id: 77).map(\.text)
        let words = try peer.ask("signal_joined", parts.map { Array($0.utf8) })
        #expect(words == ["call", text].map { Array($0.utf8).word })
        var collected = SignalParts()
        var whole: ReceivedSignal?
        for part in try peer.ask("signal_parts", 77, Array("call".utf8), Array(text.utf8)).map(WirePeer.text) {
            whole = collected.take(
                ReceivedSignal(user: "bob", device: DeviceID(1), kind: "part", text: part, writtenAt: 0))
        }
        #expect(whole?.kind == "call" && whole?.text == text)
    }

    // MARK: Files

    @Test func weSealFiles() throws {
        let (peer, (reference, data, key)) = (try WirePeer(), try file())
        var sealer = FileSealer(key: key, size: reference.size)
        var parts: [[UInt8]] = []
        for at in stride(from: 0, to: data.count, by: FileReference.partSize) {
            parts.append(try sealer.seal(Array(data[at..<min(at + FileReference.partSize, data.count)])))
        }
        let words: [any WireWord] = [reference.size, reference.digest, key]
        #expect(try WirePeer.bytes(try peer.ask("file_open", words + parts)[0]) == data)
        for other in [parts.reversed(), [parts[0]], [parts[0], parts[1].dropLast()]] {
            #expect(throws: WirePeer.Refusal.self) { try peer.ask("file_open", words + other) }
        }
        let fields: [any WireWord] = [
            reference.size, reference.digest, key, Array("cat.png".utf8), Array("image/png".utf8),
            Array("one".utf8), Array("two".utf8),
        ]
        #expect(try peer.ask("file_reference_read", Array(reference.text.utf8)) == fields.map(\.word))
        #expect(try FileReference(WirePeer.text(try peer.ask("file_reference_make", fields)[0])) == reference)
    }

    @Test(arguments: [0, 1, 65_536, 131_072, 200_000]) func weOpenFiles(length: Int) throws {
        let (peer, device) = (try WirePeer(), WireDevice(1))
        let (data, key) = (device.random.bytes(length), device.random.bytes(32))
        let words = try peer.ask("file_seal", data, key).map(WirePeer.bytes)
        let reference = try #require(
            FileReference(
                size: UInt64(length), digest: words[0], key: key, name: "a", type: "b",
                parts: words.dropFirst().map { _ in "id" }))
        func open(_ parts: [[UInt8]]) throws -> [UInt8]? {
            var opener = FileOpener(reference)
            let data = try parts.flatMap { try opener.open($0) }
            return opener.isComplete ? data : nil
        }
        let parts = Array(words.dropFirst())
        #expect(try open(parts) == data)
        var altered = parts
        altered[altered.count - 1][0] ^= 1
        #expect(refuses { _ = try open(altered) })
        #expect(try open(Array(parts.dropLast())) == nil)
    }

    // MARK: History

    @Test func historiesAreTheSame() throws {
        let peer = try WirePeer()
        var place = HistoryCursor()
        (place.stage, place.name, place.before) = (.messages, "bob", 77)
        (place.offset, place.mark, place.count) = (1, 2, 3)
        let bytes = try peer.bytes("history_place", 1, 77, 1, 2, 3, Array("bob".utf8))
        let question = HistoryMessage.wanted(place).text
        #expect(try WirePeer.text(try peer.ask("history_question", bytes)[0]) == question)
        #expect(try peer.ask("history_read", Array(question.utf8)) == ["1", bytes.word, "-"])
        for next in [nil, place] {
            var part = HistoryPart(asked: HistoryCursor(), next: next)
            part.items = [HistoryItem(.message, sequence: 9, [1, 2, 3])]
            let text = HistoryMessage.part(part).text
            // The first place is before all.
            let first = try peer.bytes("history_place", 0, UInt64.max, 0, 0, 0, [UInt8]())
            let following = next == nil ? [] : bytes
            #expect(
                try peer.ask("history_read", Array(text.utf8))
                    == ["2", first.word, following.word, "2", "9", "0", "3", [UInt8]([1, 2, 3]).word])
            let theirs = try peer.ask("history_part", first, following, 2, 9, 0, 3, [1, 2, 3] as [UInt8])
            #expect(try HistoryMessage(WirePeer.text(theirs[0])) == .part(part))
        }
    }

    // MARK: Groups

    @Test func groupsAreTheSame() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        let key = try peer.bytes("device", "d")
        let identity = try IdentityKey(key.span)
        let content = GroupContent(
            name: "Cats", metadata: [7], members: [.init(.services("alice"), .owner), .init(.services("bob"))])
        // Ours.
        let made = GroupChain(content, random: 1, by: .services("alice"), ours.id, ours.identity)
        let chain = try #require(made)
        var later = content
        later.members.append(.init(.services("carol"), .moderator))
        let added = chain.adding(later, random: 2, by: .services("alice"), ours.id, ours.identity)
        let longer = try #require(added)
        let secret = ours.random.bytes(32)
        let blob = try GroupReference.seal(longer, key: secret, random: &ours.random)
        let signer = "\(ours.id.value)=\(ours.key.word)"
        func member(_ role: String, _ name: String) -> [String] { [role, Array(name.utf8).word] }
        let words = try peer.ask("group_open", secret, blob, longer.last.digest, signer)
        #expect(words[0] == "2" && words[1...2] == [chain.last.digest.word, longer.last.digest.word])
        #expect(
            Array(words[3...]) == [Array("Cats".utf8).word, "07"] + member("2", "alice") + member("0", "bob")
                + member("1", "carol"))
        for other in blob.altered { #expect(try peer.refuses("group_open", secret, other, longer.last.digest, signer)) }
        // By another's key.
        #expect(
            try peer.refuses("group_open", secret, blob, longer.last.digest, "\(ours.id.value)=\(key.word)"))
        // Theirs.
        let (title, owner) = (Array("Dogs".utf8), Array("dan".utf8))
        let first = try peer.ask(
            "group_version", "d", [UInt8](repeating: 0, count: 32), title, [UInt8](), owner, Self.theirID,
            "2=\(owner.word)"
        ).map(WirePeer.bytes)
        let next = try peer.ask(
            "group_version", "d", first[1], title, [UInt8](), owner, Self.theirID, "0=\(Array("bob".utf8).word)",
            "2=\(owner.word)"
        ).map(WirePeer.bytes)
        let theirBlob = try peer.bytes("group_seal", secret, first[0], next[0])
        let reference = GroupReference(group: GroupID(first[1]), digest: next[1], key: secret, blob: "id")
        let read = try reference.open(theirBlob)
        #expect(read.isSigned(0, by: identity) && read.isSigned(1, by: identity))
        #expect(!read.isSigned(1, by: ours.identity.publicKey))
        #expect(read.content.name == "Dogs" && read.content.members.count == 2)
        for other in theirBlob.altered { #expect(refuses { _ = try reference.open(other) }) }
        // The tag.
        var tag: [UInt8] = []
        Base64.encode(reference.bytes[...], into: &tag)
        let fields: [any WireWord] = [reference.group.bytes, reference.digest, secret, Array("id".utf8)]
        #expect(try WirePeer.bytes(try peer.ask("group_tag_make", fields)[0]) == tag)
        #expect(try peer.ask("group_tag_read", tag) == fields.map(\.word))
    }

    // MARK: Published keys

    @Test func publishedKeysAreTheSame() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask("device", "d")
        let account = Array("alice".utf8)
        let list = ours.list
        let bundle = ours.bundle(oneTime: false)
        let keys = DeviceKeys(
            try PreKeyBundle(serialized: bundle.span), of: ours.id, root: list.root, account: "alice",
            signedBy: ours.identity)
        let published = PublishedKeys(deviceList: list, devices: [keys]).bytes
        #expect(try peer.ask("keys_read", published, account) == [list.bytes.word, ours.id.word, bundle.word])
        for other in published.altered { #expect(try peer.refuses("keys_read", other, account)) }
        #expect(try peer.refuses("keys_read", published, Array("bob".utf8)))
        let request = DeviceRequest(root: list.root, keys: keys).bytes
        #expect(try peer.ask("addition_read", request, account) == [list.root.bytes.word, ours.id.word, bundle.word])
        for other in request.altered { #expect(try peer.refuses("addition_read", other, account)) }
        // Theirs.
        let theirList = try peer.bytes("list_make", "d", Self.theirID)
        let theirs = try peer.bytes("keys_make", "d", Self.theirID, account, theirList)
        func accepts(_ bytes: [UInt8], _ account: String) -> Bool {
            (try? PublishedKeys(bytes))?.confirmed(for: account).map(\.id) == [Self.theirID]
        }
        #expect(accepts(theirs, "alice") && !accepts(theirs, "bob"))
        for other in theirs.altered { #expect(!accepts(other, "alice")) }
        let addition = try peer.bytes("addition_make", "d", Self.theirID, account, list.root.bytes)
        func isRequest(_ bytes: [UInt8]) -> Bool {
            guard let read = try? DeviceRequest(bytes) else { return false }
            return read.keys.isConfirmed(root: read.root, account: "alice")
        }
        #expect(isRequest(addition))
        for other in addition.altered { #expect(!isRequest(other)) }
    }

    // MARK: Beside the texts of an app

    @Test func framesAreTheSame() throws {
        let peer = try WirePeer()
        let frames: [(ChannelFrame, [any WireWord])] = [
            (.message(to: DeviceID(5), MessageID(6), [1, 2]), [1, 5, 6, [1, 2] as [UInt8]]),
            (.keys([3], asksForKeys: false), [2, 0, 0, [3] as [UInt8]]),
            (.keys([3], asksForKeys: true), [3, 0, 0, [3] as [UInt8]]),
        ]
        for (frame, words) in frames {
            #expect(try peer.ask("frame_read", frame.bytes) == words.map(\.word))
            #expect(try WirePeer.bytes(try peer.ask("frame_make", words)[0]) == frame.bytes)
            #expect(try WirePeer.text(try peer.ask("armour", frame.bytes)[0]) == frame.markedText)
            #expect(try peer.refuses("frame_read", [UInt8](frame.bytes.dropFirst())))
        }
    }

    // MARK: Calls

    @Test func signalsOfCallsAreTheSame() throws {
        let peer = try WirePeer()
        let id = try #require(UUID(uuidString: "11111111-2222-3333-4444-555555555555"))
        let call = Call(
            id: id, sharedCommunicationId: "#room",
            sender: .init(secretName: "alice", nickname: "Alice", deviceId: "1"),
            recipients: [.init(secretName: "bob", nickname: "Bob")],
            createdAt: Date(timeIntervalSince1970: 1_700_000_000), supportsVideo: true)
        let sdp = SessionDescription(sdp: "v=0\r\n", type: .offer)
        let candidate = IceCandidate(id: 3, sdp: "candidate:1", sdpMLineIndex: 0, sdpMid: "0")
        let messages: [(CallEnvelope.Kind, CallEnvelope.Payload)] = [
            (.sdpOffer, .init(call: call, sdp: sdp)), (.iceCandidate, .init(candidate: candidate)),
            (.ciphertext, .init(call: call, connectionId: "c", ciphertext: Data([1, 2, 3]))),
            (.groupControl, .init(control: .participants(call.recipients, version: 4))),
            (.groupControl, .init(control: .participantDemuxId(participantId: "p", demuxId: 5))),
            (.groupControl, .init(call: call, control: .invitation)), (.answered, .init(caller: "alice")),
            (.end, .init(endState: "x")),
        ]
        for (number, (kind, payload)) in messages.enumerated() {
            let message = CallEnvelope(
                callId: "#room", call: id, from: "alice", to: "bob", kind, (1_700_000_000_000, number), payload)
            let words = try peer.ask("call_read", Array(try message.text().utf8))
            #expect(words[0] == kind.rawValue)
            // The program makes the message of the page from the fields that it has read.
            let text = try WirePeer.text(try peer.ask("call_make", words)[0])
            #expect(try CallEnvelope(text: text) == message)
        }
    }
}
