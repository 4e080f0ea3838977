import TestKit
import Testing

@testable import DoubleRatchet

/// The programmes of `Tests/fuzz` without a fuzzer: drawn from seeds, on every platform. A fuzzer's finds come here.
@Suite("Programmes drawn from a seed")
struct FuzzTests {
    @Test("conversations: 40 programmes of each beginning", arguments: 0..<8 as Range<UInt8>)
    func conversations(kind: UInt8) throws {
        var random = SeededGenerator(seed: 700 + UInt64(kind))
        var (opened, refused) = (0, 0)
        for round in 0..<40 {
            let programme = [kind] + random.bytes(40 + random.below(160))
            do {
                let result = try ConversationProgramme.run(programme)
                opened += result.opened
                refused += result.refused
            } catch {
                Issue.record("beginning \(kind), round \(round): \(error)\n\(text(programme))")
                return
            }
        }
        print("FuzzTests, beginning \(kind): \(opened) opened, \(refused) refused")
        #expect(opened > 200 && refused > 120, "the programmes do too little")
    }

    @Test("a peer that lies: 30 programmes against each end", arguments: 0..<2 as Range<UInt8>)
    func hostilePeer(victim: UInt8) throws {
        var random = SeededGenerator(seed: 900 + UInt64(victim))
        var (opened, refused) = (0, 0)
        for round in 0..<30 {
            // Of version 3 and version 2 in turns.
            let programme = [victim | UInt8(round % 2) << 1] + random.bytes(20 + random.below(100))
            do {
                let result = try HostileProgramme.run(programme)
                opened += result.opened
                refused += result.refused
            } catch {
                Issue.record("victim \(victim), round \(round): \(error)\n\(text(programme))")
                return
            }
        }
        print("FuzzTests, hostile peer \(victim): \(opened) opened, \(refused) refused")
        #expect(opened > 1000 && refused > 60, "the programmes do too little")
    }

    @Test("bytes: 400 programmes for each reader", arguments: 0..<UInt8(ByteProgramme.readerCount))
    func bytes(reader: UInt8) {
        var random = SeededGenerator(seed: 800 + UInt64(reader))
        for round in 0..<400 {
            // Few changes, so that some get far.
            let programme = [reader] + random.bytes(1 + random.below(24))
            do {
                try ByteProgramme.run(programme)
            } catch {
                Issue.record("reader \(reader), round \(round): \(error)\n\(text(programme))")
                return
            }
        }
    }

    @Test("what is genuine passes", arguments: 0..<UInt8(ByteProgramme.readerCount))
    func genuine(reader: UInt8) throws {
        for form in 0..<8 as Range<UInt8> {
            try ByteProgramme.run([reader])
            try ByteProgramme.run([reader, form])
            try ByteProgramme.run([reader, form, form])
        }
    }
}
