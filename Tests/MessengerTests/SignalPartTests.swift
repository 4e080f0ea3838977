import Envelope
import Messenger
import TestKit
import Testing

/// Long signals in parts.
@Suite struct SignalPartTests {
    private func received(_ job: SignalJob, device: UInt64 = 1, at time: Int64 = 1) -> ReceivedSignal {
        ReceivedSignal(user: "bob", device: DeviceID(device), kind: job.kind, text: job.text, writtenAt: time)
    }

    private func job(_ text: String) -> SignalJob { SignalJob(to: "bob", kind: "call", text: text, lifetime: 60) }

    @Test(arguments: [0, 1, 1399, 1400, 1401, 2800, 2801, 60_000]) func aSignalComesWhole(_ length: Int) {
        for unit in ["x", "ä", "e\u{301}", "👩‍👩‍👧‍👦", "\r\n"] {
            let text = String(repeating: unit, count: length / unit.utf8.count)
            let parts = SignalParts.parts(of: job(text), id: 7)
            #expect(parts.allSatisfy { $0.text.utf8.count <= 1500 && $0.lifetime == 60 })
            #expect((parts.count == 1) == (text.utf8.count <= SignalParts.pieceLimit))
            var collected = SignalParts()
            var whole: [ReceivedSignal] = []
            for (index, part) in parts.enumerated() {
                whole += [collected.take(received(part, at: Int64(index) + 5))].compactMap(\.self)
            }
            #expect(whole == [received(job(text), at: 5)])
        }
    }

    @Test func partsThatAreMissingOrMixedMakeNothing() {
        let (one, other) = (
            SignalParts.parts(of: job(String(repeating: "a", count: 4000)), id: 1),
            SignalParts.parts(of: job(String(repeating: "b", count: 4000)), id: 2)
        )
        for order in [
            [one[1], one[2]], [one[0], one[2]], [one[0], one[0], one[2]], [one[0], other[1], one[2]],
            [one[0], one[1], other[2]], [one[2], one[1], one[0]],
        ] {
            var collected = SignalParts()
            #expect(order.compactMap { collected.take(received($0)) }.isEmpty)
        }
        // Two devices at the same time.
        var collected = SignalParts()
        var count = 0
        for (first, second) in zip(one, other) {
            for (part, device) in [(first, UInt64(1)), (second, 2)]
            where collected.take(received(part, device: device)) != nil { count += 1 }
        }
        #expect(count == 2)
    }

    @Test func whatIsNoPartIsDropped() {
        var random = SeededGenerator(seed: 3)
        let good = SignalParts.parts(of: job(String(repeating: "a", count: 3000)), id: 1)[0].text
        var texts = [
            "", "\n", "1 0 2 call", "1 0 1 call\nx", "1 2 2 call\nx", "1 -1 2 call\nx", "1 0 2 part\nx", "1 0 2 \nx",
            "1 0 999 call\nx", "99999999999 0 2 call\nx", "1 0 2 CALL\nx", "1  0 2 call\nx", "1 0 2 call x\ny",
        ]
        for length in 0..<14 { texts.append(String(good.prefix(length))) }
        for text in texts {
            var collected = SignalParts()
            let part = ReceivedSignal(user: "bob", device: DeviceID(1), kind: "part", text: text, writtenAt: 1)
            #expect(collected.take(part) == nil)
            let last = ReceivedSignal(
                user: "bob", device: DeviceID(1), kind: "part", text: "1 1 2 call\ny", writtenAt: 1)
            #expect(collected.take(last) == nil, "\(text)")
        }
        for _ in 0..<2000 {
            var bytes = Array(good.utf8.prefix(40))
            for _ in 0...random.below(3) { bytes[random.below(16)] = UInt8(random.below(128)) }
            var collected = SignalParts()
            let text = String(decoding: bytes, as: UTF8.self)
            #expect(
                collected.take(
                    ReceivedSignal(user: "bob", device: DeviceID(1), kind: "part", text: text, writtenAt: 1)) == nil)
        }
    }

    /// A device that begins signals and never ends them fills no memory.
    @Test func collectionsAreBounded() {
        var collected = SignalParts()
        for device in 0..<10_000 {
            let text = "1 0 2 call\nx"
            #expect(
                collected.take(
                    ReceivedSignal(
                        user: "bob", device: DeviceID(UInt64(device)), kind: "part", text: text, writtenAt: 1)) == nil)
        }
        let piece = String(repeating: "x", count: 50_000)
        for index in 0..<2 {
            let part = ReceivedSignal(
                user: "bob", device: DeviceID(1), kind: "part", text: "1 \(index) 2 call\n\(piece)", writtenAt: 1)
            #expect(collected.take(part) == nil)
        }
        // And keeps no other one from sending.
        let parts = SignalParts.parts(of: job(String(repeating: "a", count: 4000)), id: 1)
        let whole = parts.compactMap { collected.take(received($0, device: 20_000)) }
        #expect(whole == [received(job(String(repeating: "a", count: 4000)), device: 20_000)])
    }

    /// On a carrier of lines the parts of a signal are queued as one: no part of another signal comes between them.
    @Test func allPartsAreSentTogether() throws {
        let pair = try IntroductionTests.Pair()
        try pair.meet()
        let texts = ["a", "b"].map { String(repeating: $0, count: 4000) }
        for text in texts { pair.alice.perform { .signal(ticket: $0, job(text)) } }
        pair.deliver()
        var collected = SignalParts()
        let parts = pair.bob.events.compactMap { event in if case .signal(let signal) = event { signal } else { nil } }
        #expect(parts.count == 6 && parts.allSatisfy { $0.kind == SignalParts.kind })
        #expect(parts.compactMap { collected.take($0) }.map(\.text) == texts)
    }
}
