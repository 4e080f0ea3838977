import Envelope
import Foundation
import Testing

@Suite struct EnvelopeTests {
    let sample = Envelope(sender: DeviceID(0x0102_0304_0506_0708), messageID: MessageID(9), ratchetMessage: [1, 2, 3])

    @Test func roundTrip() throws {
        #expect(sample.bytes == [0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3])
        #expect(try Envelope(sample.bytes) == sample)
    }

    /// Typed in, because backends keep such bytes for years: each version that was ever written stays readable.
    @Test(arguments: [Envelope.Kind.direct, .several, .room, .introduction])
    func envelopesOfVersionOneAreRead(_ kind: Envelope.Kind) throws {
        let first: [Envelope.Kind: UInt8] = [.direct: 0x11, .several: 0x12, .room: 0x13, .introduction: 0x14]
        let bytes: [UInt8] = [
            try #require(first[kind]), 0xF1, 0xE2, 0xD3, 0xC4, 0xB5, 0xA6, 0x97, 0x88, 0x01, 0x23, 0x45, 0x67, 0x89,
            0xAB, 0xCD, 0xEF, 0x09,
        ]
        let envelope = Envelope(
            kind: kind, sender: DeviceID(0xF1E2_D3C4_B5A6_9788), messageID: MessageID(0x0123_4567_89AB_CDEF),
            ratchetMessage: [9])
        #expect(try Envelope(bytes) == envelope)
        #expect(try #require(Envelope.claim(of: bytes)) == (kind, envelope.sender))
        #expect(try #require(Envelope.claim(of: Array(bytes.dropLast()))) == (kind, envelope.sender))
        // Associated data and body have had one form only.
        let data = AssociatedData(
            protocolName: "irc", network: "n", sender: "a", senderDevice: DeviceID(1), recipient: "bo",
            recipientDevice: DeviceID(2), messageID: MessageID(3), protection: .gateway)
        let numbers: [[UInt8]] = [1, 2, 3].map { [0, 8, 0, 0, 0, 0, 0, 0, 0, $0] }
        let accounts: [[UInt8]] = [[0, 3] + "irc".utf8 + [0, 1] + "n".utf8 + [0, 1] + "a".utf8, [0, 2] + "bo".utf8]
        #expect(data.bytes == "pawl-ad1".utf8 + [1] + accounts[0] + numbers[0] + accounts[1] + numbers[1] + numbers[2])
        #expect(
            try Body([0, 0, 2, 0x2B, 0x61, 0, 1, 0x68, 0, 0]) == Body(tags: Array("+a".utf8), text: Array("h".utf8)))
    }

    @Test func anUnknownVersionHasItsOwnError() {
        for version in UInt8(0)...15 where version != 1 {
            let bytes = [version << 4 | 1] + sample.bytes.dropFirst()
            #expect(throws: EnvelopeError.unsupportedVersion(version)) { try Envelope(bytes) }
            #expect(Envelope.claim(of: bytes) == nil)
        }
    }

    @Test func refusals() {
        #expect(throws: EnvelopeError.malformed) { try Envelope([UInt8]()) }
        #expect(throws: EnvelopeError.unsupportedKind(7)) { try Envelope([0x17] + sample.bytes.dropFirst()) }
        for length in 1...17 {
            #expect(throws: EnvelopeError.malformed) { try Envelope(Array(sample.bytes.prefix(length))) }
        }
        #expect(throws: EnvelopeError.malformed) {
            try Envelope(sample.bytes + [UInt8](repeating: 0, count: Carrier.irc.maximumLength))
        }
    }

    @Test func bodiesRoundTripWithPadding() throws {
        let body = Body(tags: Array("+draft/reply=x".utf8), text: Array("hello".utf8))
        for target in [0, body.length, body.length + 1, 400] {
            let bytes = body.bytes(paddedTo: target)
            #expect(bytes.count == max(body.length, target))
            #expect(try Body(bytes) == body)
        }
        var tampered = body.bytes(paddedTo: 100)
        tampered[99] = 1
        #expect(throws: EnvelopeError.malformed) { try Body(tampered) }
        for length in 0..<body.length {
            #expect(throws: EnvelopeError.malformed) { try Body(Array(body.bytes(paddedTo: 0).prefix(length))) }
        }
        #expect(throws: EnvelopeError.unsupportedKind(9)) { try Body([9, 0, 0, 0, 0]) }
    }

    @Test func everyFieldOfTheAssociatedDataCounts() {
        let base = AssociatedData(
            protocolName: "irc", network: "n", sender: "a", senderDevice: DeviceID(1), recipient: "b",
            recipientDevice: DeviceID(2), messageID: MessageID(3), protection: .gateway)
        var variants = [base]
        func vary(_ change: (inout AssociatedData) -> Void) {
            var variant = base
            change(&variant)
            variants.append(variant)
        }
        vary { $0.protocolName = "xmpp" }
        vary { $0.network = "m" }
        vary { $0.sender = "c" }
        vary { $0.senderDevice = DeviceID(9) }
        vary { $0.recipient = "c" }
        vary { $0.recipientDevice = DeviceID(9) }
        vary { $0.messageID = MessageID(9) }
        vary { $0.protection = .device }
        // Text that moves from one field to the next.
        vary {
            $0.network = "na"
            $0.sender = ""
        }
        #expect(Set(variants.map(\.bytes)).count == variants.count)
    }
}

@Suite struct ArmourTests {
    @Test func base64IsStrict() {
        for (bytes, text) in [
            ([], ""), ([0x66], "Zg"), ([0x66, 0x6F], "Zm8"), ([0x66, 0x6F, 0x6F], "Zm9v"), ([0xFB, 0xFF], "+/8"),
        ] as [([UInt8], String)] {
            var encoded: [UInt8] = []
            Base64.encode(bytes[...], into: &encoded)
            #expect(String(decoding: encoded, as: UTF8.self) == text)
            #expect(Base64.decode(Array(text.utf8)) == bytes)
            #expect(Base64.encodedLength(bytes.count) == text.utf8.count)
        }
        // A spare bit, padding, a foreign character, an impossible length.
        for text in ["Zh", "Zm9", "Zg==", "Z g", "A", "Zm9vA"] where text != "Zm9" {
            #expect(Base64.decode(Array(text.utf8)) == nil, "\(text)")
        }
    }

    /// Beside Foundation's, which pads.
    @Test func everyLengthIsTheSameElsewhere() {
        for length in 0...200 {
            let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ length &* 7) }
            let padded = Array(Data(bytes).base64EncodedString().utf8)
            let text = Array(padded.prefix { $0 != UInt8(ascii: "=") })
            var encoded = Array("before".utf8)
            Base64.encode(([1, 2] + bytes)[2...], into: &encoded)
            #expect(encoded == Array("before".utf8) + text)
            #expect(Base64.decode(text) == bytes)
            #expect(Base64.decode(ArraySlice([1] + text).dropFirst()) == bytes)
        }
    }

    /// One text for one sequence of bytes: whatever is read is written in the same way again.
    @Test func whatIsAlteredIsRefusedOrOtherBytes() throws {
        for text in ["Zm9vYmFy", "Zm9vYmE", "Zm9vYg", "+/+/"] {
            let good = Array(text.utf8)
            let bytes = try #require(Base64.decode(good))
            for place in good.indices {
                for character in UInt8.min...UInt8.max where character != good[place] {
                    var altered = good
                    altered[place] = character
                    guard let read = Base64.decode(altered) else { continue }
                    var again: [UInt8] = []
                    Base64.encode(read[...], into: &again)
                    #expect(read != bytes && again == altered)
                }
            }
        }
    }

    @Test(arguments: [40, 120, 300, 352, 400]) func everyLengthSurvivesAndFits(_ capacity: Int) throws {
        for length in stride(from: 18, through: 900, by: 7) {
            let envelope = (0..<length).map { UInt8(truncatingIfNeeded: $0 * 7) }
            guard let lines = Armour.split(envelope, id: 0xABCD, capacity: capacity) else {
                #expect(Armour.lines(for: length, capacity: capacity) == nil)
                continue
            }
            #expect(lines.count == Armour.lines(for: length, capacity: capacity))
            #expect(lines.allSatisfy { $0.count <= capacity })
            var joined: [UInt8] = []
            for (position, line) in lines.enumerated() {
                switch Armour.parse(line[...]) {
                case .whole(let bytes): joined += bytes
                case .fragment(let id, let index, let count, let bytes):
                    #expect(id == 0xABCD && index == position && count == lines.count)
                    joined += bytes
                default: Issue.record("line \(position) of \(length) is not armour")
                }
            }
            #expect(joined == envelope)
        }
    }

    @Test func aFullLineIsFilled() {
        for capacity in 60...420 {
            for lines in 1...4 {
                let most = Armour.capacity(lines: lines, of: capacity)
                guard most > 0, let needed = Armour.lines(for: most, capacity: capacity) else { continue }
                #expect(needed <= max(lines, 1))
            }
        }
    }

    @Test func damagedLines() {
        let good = Armour.split([UInt8](repeating: 7, count: 40), id: 1, capacity: 300)![0]
        for length in Armour.marker.count..<good.count {
            #expect(Armour.parse(good.prefix(length)) == .damaged, "cut at \(length)")
        }
        #expect(Armour.parse(Array("hello".utf8)[...]) == nil)
        #expect(Armour.parse(Array("?PAWL? words".utf8)[...]) == .notice)
        for text in [
            "?PAWL", "?PAWLx", "?PAWL:.", "?PAWL:00000001,0,1:AAAA.", "?PAWL:00000001,2,2:AAAA.",
            "?PAWL:00000001,0,17:AAAA.", "?PAWL:0000001,0,2:AAAA.", "?PAWL:00000001,00,2:AAAA.",
            "?PAWL:00000001,0,2:.", "?PAWL:00000001,0:AAAA.", "?PAWL:zzzzzzzz,0,2:AAAA.", "?PAWL:AA!A.",
            "?PAWL:+1234567,0,2:AAAA.", "?PAWL:-0000000,0,2:AAAA.",
        ] {
            #expect(Armour.parse(Array(text.utf8)[...]) == .damaged, "\(text)")
        }
    }
}

@Suite struct FragmentAssemblerTests {
    private func add(
        _ assembler: inout FragmentAssembler, _ index: Int, of count: Int, _ bytes: [UInt8], source: String = "a!b@c",
        id: UInt32 = 1, now: Int64 = 0
    ) -> FragmentAssembler.Outcome {
        assembler.add(source: source, target: "t", id: id, index: index, count: count, bytes: bytes, now: now)
    }

    @Test func anyOrder() {
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            var assembler = FragmentAssembler()
            var outcome = FragmentAssembler.Outcome.waiting
            for index in order { outcome = add(&assembler, index, of: 3, [UInt8(index)]) }
            #expect(outcome == .complete([0, 1, 2]))
            #expect(assembler.isEmpty)
        }
    }

    @Test func duplicatesAndContradictions() {
        var assembler = FragmentAssembler()
        #expect(add(&assembler, 0, of: 2, [1]) == .waiting)
        #expect(add(&assembler, 0, of: 2, [1]) == .duplicate)
        #expect(add(&assembler, 0, of: 2, [2]) == .contradiction)
        #expect(assembler.isEmpty)
        #expect(add(&assembler, 0, of: 2, [1]) == .waiting)
        #expect(add(&assembler, 0, of: 3, [1]) == .contradiction)
    }

    @Test func sourcesAndIdsDoNotMix() {
        var assembler = FragmentAssembler()
        #expect(add(&assembler, 0, of: 2, [1], source: "a!x@y") == .waiting)
        #expect(add(&assembler, 1, of: 2, [2], source: "b!x@y") == .waiting)
        #expect(add(&assembler, 1, of: 2, [3], id: 2) == .waiting)
        #expect(add(&assembler, 1, of: 2, [4], source: "a!x@y") == .complete([1, 4]))
    }

    @Test func boundsOfASourceHoldAndWhatIsHeldStays() {
        var limits = FragmentAssembler.Limits()
        limits.envelopes = 4
        limits.envelopesPerSource = 2
        limits.bytes = 100
        var assembler = FragmentAssembler(limits: limits)
        #expect(add(&assembler, 0, of: 2, [1], id: 1) == .waiting)
        #expect(add(&assembler, 0, of: 2, [1], id: 2) == .waiting)
        #expect(add(&assembler, 0, of: 2, [1], id: 3) == .overflow)
        #expect(add(&assembler, 0, of: 2, [UInt8](repeating: 0, count: 101), source: "z!z@z") == .overflow)
        #expect(add(&assembler, 1, of: 2, [UInt8](repeating: 0, count: 100), id: 1) == .overflow)
        #expect(add(&assembler, 1, of: 2, [2], id: 1) == .complete([1, 2]))
        #expect(add(&assembler, 0, of: 2, [1], id: 3) == .waiting)
    }

    /// Somebody begins envelopes under many nicks and ends none. Others are read all the same.
    @Test func unfinishedEnvelopesKeepNobodyFromSending() {
        var limits = FragmentAssembler.Limits()
        limits.envelopes = 8
        limits.envelopesPerSource = 2
        limits.bytes = 100
        var assembler = FragmentAssembler(limits: limits)
        for nick in 0..<4 {
            for id in UInt32(1)...2 {
                let outcome = add(
                    &assembler, 0, of: 2, [UInt8](repeating: 0, count: 12), source: "x\(nick)!x@y", id: id,
                    now: Int64(nick))
                #expect(outcome == .waiting)
            }
        }
        // Neither their number nor their bytes leave room.
        #expect(add(&assembler, 0, of: 3, [1], now: 9) == .waiting)
        #expect(add(&assembler, 1, of: 3, [UInt8](repeating: 2, count: 20), now: 10) == .waiting)
        #expect(add(&assembler, 0, of: 2, [1], source: "x0!x@y", id: 3, now: 11) == .waiting)
        #expect(add(&assembler, 2, of: 3, [3], now: 12) == .complete([1] + [UInt8](repeating: 2, count: 20) + [3]))
        #expect(assembler.expire(now: 12) == ["x0!x@y", "x1!x@y"])
        #expect(assembler.expire(now: 12).isEmpty)
    }

    @Test func inactivityEndsAWait() {
        var limits = FragmentAssembler.Limits()
        limits.inactivity = 10
        var assembler = FragmentAssembler(limits: limits)
        _ = add(&assembler, 0, of: 3, [1], now: 0)
        _ = add(&assembler, 1, of: 3, [1], now: 8)
        #expect(assembler.expire(now: 17).isEmpty)
        #expect(assembler.nextDeadline == 18)
        #expect(assembler.expire(now: 18) == ["a!b@c"])
        #expect(assembler.isEmpty)
        #expect(assembler.nextDeadline == nil)
    }
}
