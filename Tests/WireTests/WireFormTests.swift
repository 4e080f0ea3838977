import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import IRCGateway
import NIOCore
import TestKit
import TestThreads
import Testing

/// Device lists, control messages, text forms and the control plane with a program that was written from the page.
@Suite(.blocking) struct WireFormTests {
    private static let theirID = DeviceID(0xFFEE_DDCC_BBAA_9988)

    // MARK: Device lists

    @Test func listsGrowAndShrinkOnBothSides() throws {
        let (peer, ours, phone) = (try WirePeer(), WireDevice(1), WireDevice(2))
        let key = try peer.bytes("device", "d")
        // Ours, with a version of theirs.
        let first = ours.list
        let theirs = ListedDevice(id: Self.theirID, identity: try IdentityKey(key.span))
        let grownByUs = first.adding(theirs, by: ours.id, ours.identity)
        let second = try #require(grownByUs)
        #expect(try peer.ask("list_read", first.bytes) == ["1", ours.id.word, ours.key.word])
        #expect(
            try peer.ask("list_read", second.bytes) == ["2", ours.id.word, ours.key.word, Self.theirID.word, key.word])
        let grown = try peer.bytes("list_add", second.bytes, phone.id, phone.key, Self.theirID, "d")
        let third = try DeviceList(grown)
        #expect(third.continues(second) && third.current.map(\.id) == [ours.id, Self.theirID, phone.id])
        let fourth = try DeviceList(try peer.bytes("list_remove", grown, ours.id, Self.theirID, "d"))
        #expect(fourth.continues(third) && fourth.current.map(\.id) == [Self.theirID, phone.id])
        #expect(fourth.root == ours.identity.publicKey)
        for bytes in [second.bytes, fourth.bytes] {
            for other in bytes.altered {
                #expect(try peer.refuses("list_read", other))
                #expect(refuses { _ = try DeviceList(other) })
            }
        }
        // A removed device signs nothing.
        #expect(throws: EnvelopeError.self) {
            try DeviceList(
                try peer.bytes(
                    "list_add", try peer.bytes("list_remove", second.bytes, Self.theirID, Self.theirID, "d"),
                    phone.id, phone.key, Self.theirID, "d"))
        }
    }

    @Test func rulesOfListsAreTheSame() throws {
        let (peer, ours, phone) = (try WirePeer(), WireDevice(1), WireDevice(2))
        let key = try peer.bytes("device", "d")
        let own = try peer.bytes("list_make", "d", Self.theirID)
        func bothRefuse(_ bytes: [UInt8]) throws -> Bool {
            let theyRefuse = try peer.refuses("list_read", bytes)
            return theyRefuse && refuses { _ = try DeviceList(bytes) }
        }
        // A device twice, a key twice, a number that comes back with another key.
        for (id, identity) in [(Self.theirID, phone.key), (DeviceID(7), key)] {
            #expect(try bothRefuse(try peer.bytes("list_add", own, id, identity, Self.theirID, "d")))
        }
        let grown = try peer.bytes("list_add", own, DeviceID(7), phone.key, Self.theirID, "d")
        let shrunk = try peer.bytes("list_remove", grown, DeviceID(7), Self.theirID, "d")
        #expect(
            try bothRefuse(try peer.bytes("list_add", shrunk, DeviceID(7), ours.key, Self.theirID, "d")))
        // Another's signature.
        try peer.ask("device", "e")
        #expect(try bothRefuse(try peer.bytes("list_add", own, DeviceID(7), ours.key, Self.theirID, "e")))
        _ = try DeviceList(shrunk)
    }

    @Test func safetyNumbersAreTheSame() throws {
        let (peer, one, two) = (try WirePeer(), WireDevice(1), WireDevice(2))
        let number = one.list.safetyNumber(with: two.list)
        for (own, other) in [(one, two), (two, one)] {
            let words = try peer.ask("safety_number", own.key, other.key)
            #expect(try WirePeer.text(words[0]) == number.description)
            #expect(try WirePeer.bytes(words[1]) == number.scannable)
        }
    }

    @Test func contactCardsAreTheSame() throws {
        let (peer, device) = (try WirePeer(), WireDevice(1))
        for name in ["alice", "B\u{F6}b @ \"home\" 50%+~-._", "\u{1F431}&key="] {
            let card = try CardForm(name: name, root: device.identity.publicKey, keys: [1, 2, 3])
            let (text, uri) = (Array(name.utf8), card.uri)
            #expect(try WirePeer.text(try peer.ask("card_make", text, device.key)[0]) == uri)
            #expect(try peer.ask("card_read", Array(uri.utf8)) == [text.word, device.key.word])
            #expect(try CardForm(uri: uri).name == name)
            #expect(try peer.bytes("card_file_make", text, device.key, [1, 2, 3]) == card.bytes)
            #expect(
                try peer.ask("card_file_read", card.bytes) == [text.word, device.key.word, [UInt8]([1, 2, 3]).word])
            for other in card.bytes.altered {
                #expect(try peer.refuses("card_file_read", other))
                #expect(refuses { _ = try CardForm(other) })
            }
            for other in Array(uri.utf8).altered {
                #expect(try peer.refuses("card_read", other))
                #expect(refuses { _ = try CardForm(uri: String(decoding: other, as: UTF8.self)) })
            }
        }
    }

    // MARK: Control messages

    @Test func weMakeControlMessages() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        let list = ours.list
        func read(_ message: ControlMessage) throws -> [String] {
            try peer.ask("control_read", message.body.bytes(paddedTo: 300))
        }
        #expect(try read(.ready(list)) == ["1", list.bytes.word])
        #expect(try read(.acknowledge(list)) == ["2", list.bytes.word])
        #expect(try read(.senderKeyWanted(room: "#cats")) == ["4", Array("#cats".utf8).word])
        #expect(try read(.adopted(list)) == ["5", list.bytes.word])
        let key = SenderKey(random: &ours.random)
        var distribution: [UInt8] = []
        key.distribution.serialize(into: &distribution)
        let ended = [EndedKey(id: 5, count: 6), EndedKey(id: 7, count: 8)]
        let given = ControlMessage.senderKey(room: "#cats", key.distribution, ended: ended)
        #expect(
            try peer.ask("control_sender_key_read", given.body.bytes(paddedTo: 0))
                == [Array("#cats".utf8).word, distribution.word, "5", "6", "7", "8"])
        let request = RoomRequest(
            act: .protect, number: 1_700_000_000_000, room: "#cats", network: "Example", device: ours.id,
            identity: ours.identity)
        let words = try read(.roomRequest(request))
        #expect(words[0] == "6")
        let bytes = try WirePeer.bytes(words[1])
        #expect(
            try peer.ask("room_request_read", bytes, ours.key, ours.id)
                == ["1", "1700000000000", Array("#cats".utf8).word, Array("Example".utf8).word])
        for other in bytes.altered { #expect(try peer.refuses("room_request_read", other, ours.key, ours.id)) }
    }

    @Test func weReadControlMessages() throws {
        let peer = try WirePeer()
        let key = try peer.bytes("device", "d")
        let identity = try IdentityKey(key.span)
        let list = try peer.bytes("list_make", "d", Self.theirID)
        func read(_ number: Int, _ content: [UInt8]) throws -> ControlMessage {
            try ControlMessage(try Body(try peer.bytes("control_make", number, content)).text)
        }
        for number in [1, 2, 5] {
            switch try read(number, list) {
            case .ready(let read) where number == 1: #expect(read.bytes == list)
            case .acknowledge(let read) where number == 2: #expect(read.bytes == list)
            case .adopted(let read) where number == 5: #expect(read.bytes == list)
            case let other: Issue.record("\(other)")
            }
        }
        guard case .senderKeyWanted("#cats") = try read(4, Array("#cats".utf8)) else {
            Issue.record("no request for a key")
            return
        }
        let distribution = try peer.bytes("sender_key", "k")
        let given = try Body(try peer.bytes("control_sender_key_make", Array("#cats".utf8), distribution, 5, 6))
        guard given.kind == .control, case .senderKey("#cats", let read, let ended) = try ControlMessage(given.text)
        else {
            Issue.record("no sender key")
            return
        }
        var bytes: [UInt8] = []
        read.serialize(into: &bytes)
        #expect(bytes == distribution && ended == [EndedKey(id: 5, count: 6)])
        let (room, network) = (Array("#cats".utf8), [UInt8]())
        let request = try peer.bytes("room_request_make", "d", Self.theirID, 2, 1_700_000_000_001, room, network)
        guard case .roomRequest(let parsed) = try self.request(request) else { return }
        #expect(parsed.act == .plain && parsed.number == 1_700_000_000_001 && parsed.room == "#cats")
        #expect(parsed.network.isEmpty && parsed.isSigned(by: identity, Self.theirID))
        #expect(!parsed.isSigned(by: identity, DeviceID(1)))
        for other in request.altered {
            #expect((try? RoomRequest(other))?.isSigned(by: identity, Self.theirID) ?? false == false)
        }
    }

    private func request(_ bytes: [UInt8]) throws -> ControlMessage { try ControlMessage([6] + bytes) }

    // MARK: Text forms

    @Test func armourIsTheSame() throws {
        let (peer, device) = (try WirePeer(), WireDevice(1))
        for length in [18, 19, 20, 200] {
            let envelope = device.random.bytes(length)
            let line = try #require(Armour.split(envelope, id: 1, capacity: 400)).first ?? []
            #expect(try peer.bytes("armour", envelope) == line)
            #expect(try peer.bytes("unarmour", line) == envelope)
            // What a server has cut off, and spare bits.
            #expect(try peer.refuses("unarmour", Array(line.dropLast())))
            #expect(Armour.parse(line.dropLast()) == .damaged)
            if length % 3 != 0 {
                var other = line
                other[other.count - 2] = UInt8(ascii: "/")
                #expect(try peer.refuses("unarmour", other))
                #expect(Armour.parse(other[...]) == .damaged)
            }
        }
    }

    @Test func fragmentsAreTheSame() throws {
        let (peer, device) = (try WirePeer(), WireDevice(1))
        let envelope = device.random.bytes(2000)
        let lines = try #require(Armour.split(envelope, id: 0xABC, capacity: 400))
        #expect(lines.count > 2 && lines[0].starts(with: Array("?PAWL:00000abc,0,".utf8)))
        #expect(try WirePeer.bytes(try peer.ask("unarmour", lines.reversed())[0]) == envelope)
        #expect(throws: WirePeer.Refusal.self) { try peer.ask("unarmour", Array(lines.dropFirst())) }
        let theirs = try peer.ask("fragments", envelope, 0xABC, 16).map(WirePeer.bytes)
        #expect(theirs.count == 16)
        var assembler = FragmentAssembler()
        var whole: [UInt8]?
        for line in theirs.reversed() {
            guard case .fragment(let id, let index, let count, let bytes) = Armour.parse(line[...]) else {
                Issue.record("no fragment")
                return
            }
            let outcome = assembler.add(
                source: "nick!user@host", target: "me", id: id, index: index, count: count, bytes: bytes, now: 0)
            if case .complete(let bytes) = outcome { whole = bytes }
        }
        #expect(whole == envelope)
    }

    // MARK: Control plane

    @Test func linesOfTheControlPlaneAreTheSame() throws {
        let (peer, device) = (try WirePeer(), WireDevice(1))
        for length in [1, 270, 271, 3000] {
            let message = device.random.bytes(length)
            for (id, name) in [(7, "7"), (0, "*")] as [(UInt32, String)] {
                let lines = ControlFrames.lines(message, id: id)
                #expect(try peer.ask("control_lines", name, message).map(WirePeer.text) == lines)
                let fromGateway: [any WireWord] = lines.map { Array(":irc.example \($0)".utf8) }
                #expect(try peer.ask("control_joined", fromGateway) == [name, message.word])
                var frames = ControlFrames()
                var outcome = ControlFrames.Outcome.waiting
                for line in try peer.ask("control_lines", name, message).map(WirePeer.text) {
                    outcome = frames.take(try IRCLine(ByteBuffer(string: line)), now: 0)
                }
                #expect(outcome == .whole(id: id, bytes: message))
            }
        }
    }

    @Test func proofsOfDevicesAreTheSame() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask("device", "d")
        let (nonce, account) = (ours.random.bytes(32), "alice")
        let name = Array(account.utf8)
        // Ours.
        let list = ours.list
        let bundle = ours.bundle(oneTime: false)
        let device = PublishedDevice(
            id: ours.id, bundle: try PreKeyBundle(serialized: bundle.span), oneTime: ours.oneTimeKeys(3))
        let proof = DirectoryMessage.proof(
            nonce: nonce, account: account, list, device, signedBy: ours.identity
        ).bytes
        #expect(try peer.ask("publish_read", proof, nonce, name) == [list.bytes.word, device.bytes.word])
        for other in proof.altered { #expect(try peer.refuses("publish_read", other, nonce, name)) }
        #expect(try peer.refuses("publish_read", proof, nonce, Array("bob".utf8)))
        #expect(
            try peer.ask("device_read", device.bytes)
                == [ours.id.word, bundle.word] + device.oneTime.map { DirectoryMessage.bytes([$0]).word })
        // Theirs.
        let theirList = try peer.bytes("list_make", "d", Self.theirID)
        let theirs = try peer.bytes("publish_make", "d", Self.theirID, nonce, name, theirList, 2)
        func accepts(_ bytes: [UInt8], _ account: String) -> Bool {
            guard case .publish(let list, let device, let signature) = try? DirectoryMessage(bytes) else {
                return false
            }
            return DirectoryMessage.isProof(signature, nonce: nonce, account: account, list, device)
        }
        #expect(accepts(theirs, account) && !accepts(theirs, "bob"))
        for other in theirs.altered { #expect(!accepts(other, account)) }
    }

    @Test func otherMessagesOfTheControlPlaneAreTheSame() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask("device", "d")
        let list = ours.list
        let device = PublishedDevice(
            id: ours.id, bundle: try PreKeyBundle(serialized: ours.bundle(oneTime: false).span),
            oneTime: ours.oneTimeKeys(1))
        let found = DirectoryMessage.found(.capable(account: "alice", list, [device]))
        let words = ["2", Array("alice".utf8).word, list.bytes.word, device.bytes.word]
        #expect(try peer.ask("found_read", found.bytes) == words)
        #expect(try peer.bytes("found_make", Array("alice".utf8), list.bytes, device.bytes) == found.bytes)
        #expect(try DirectoryMessage(found.bytes) == found)
        #expect(try peer.ask("found_read", DirectoryMessage.found(.outsider).bytes)[0] == "0")
        #expect(try peer.ask("found_read", DirectoryMessage.found(.legacy).bytes)[0] == "1")
        // Number, then content.
        let nonce = ours.random.bytes(32)
        let others: [(DirectoryMessage, [String])] = [
            (.challenge(nonce: nonce, account: "alice"), ["1", nonce.word, Array("alice".utf8).word]), (.low, ["2"]),
            (.find(nick: "bob"), ["17", Array("bob".utf8).word]),
            (.replenish(device.oneTime), ["18", DirectoryMessage.bytes(device.oneTime).word]),
            (.list(list), ["19", list.bytes.word]), (.done(oneTime: 99), ["32", "99"]),
            (.refused("no"), ["33", Array("no".utf8).word]),
        ]
        for (message, words) in others {
            #expect(try peer.ask("control_plane_read", message.bytes) == words)
            let bytes = try WirePeer.bytes(try peer.ask("control_plane_make", words)[0])
            #expect(try DirectoryMessage(bytes) == message)
        }
    }
}
