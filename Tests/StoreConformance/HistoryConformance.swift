// What was said is read again and again, whatever the store.

import Devices
import Envelope
import Protection
package import StorePort
import Testing
import Vault

/// What every vault does for a backend that keeps what was said.
package enum HistoryConformance {
    /// Opens the same store each time, which is empty at first.
    package typealias Open = () throws -> any Store

    package struct Check: Sendable, CustomTestStringConvertible {
        package let name: String
        package let run: @Sendable (@escaping Open) throws -> Void

        package var testDescription: String { name }
    }

    package static let checks: [Check] = [
        Check(name: "what was written is read again and again", run: again),
        Check(name: "five thousand messages are read backwards, a page with one read", run: backwards),
        Check(name: "two thousand messages are one transaction", run: batch),
        Check(name: "a message is of every length", run: lengths),
        Check(name: "people's own devices get the key as well", run: readers),
        Check(name: "no bit of an envelope may be another", run: flippedBits),
        Check(name: "an envelope stands in one conversation, under one sender", run: places),
        Check(name: "an envelope belongs to one protocol", run: protocols),
        Check(name: "a kept key opens one message until one time", run: movedRows),
        Check(name: "keys end with their time", run: expiry),
        Check(name: "keys end with a shorter time", run: shorterRetention),
        Check(name: "keys go a few at a time", run: pruning),
        Check(name: "without retention memory alone keeps keys", run: noRetention),
        Check(name: "what has no login leaves no key", run: guests),
        Check(name: "what is not committed was not said", run: failedCommit),
        Check(name: "a message that is not written takes none back", run: failedJob),
        Check(name: "reading needs no transaction", run: readingWritesNothing),
        Check(name: "a reset and an end leave history as it is", run: acts),
    ]

    // MARK: Reading again

    @Sendable static func again(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = [
            try world.write("one"), try world.write("two", by: "bob"), try world.write("three"),
            try world.write("elsewhere", in: "!other"),
        ]
        #expect(written.map(\.isFirst) == [true, false, false, true])
        for _ in 1...2 {
            for reader in ["bob", "carol", "dave"] {
                #expect(try world.read(written, by: reader) == written.map(\.outcome))
                #expect(try world.read(written.reversed(), by: reader) == written.reversed().map(\.outcome))
                #expect(
                    try world.read([written[1], written[1]], by: reader) == [written[1].outcome, written[1].outcome])
            }
            try world.restart()
        }
        // The ratchets go on where they were.
        let next = try world.write("four")
        #expect(!next.isFirst)
        #expect(next.id > written[3].id)
        #expect(try world.read([next, written[0]]) == [next.outcome, written[0].outcome])
        var nameless = written[1].item
        nameless.sender = nil
        #expect(try world.read([nameless]) == [written[1].outcome])
    }

    @Sendable static func backwards(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        var written: [WrittenMessage] = []
        for batch in 0..<10 {
            let jobs = (0..<500).map { number in
                world.job(
                    Array("message \(batch) \(number)".utf8), by: AccountID(text: number % 3 == 0 ? "bob" : "alice"),
                    in: .room("!room"))
            }
            written += try world.write(jobs).map { try $0.get() }
        }
        try world.restart()
        let backwards = Array(written.reversed())
        for page in stride(from: 0, to: backwards.count, by: 100) {
            let messages = Array(backwards[page..<page + 100])
            #expect(try world.read(messages) == messages.map(\.outcome))
        }
        #expect(world.store.keyReads == 50)
        #expect(try world.read(Array(backwards.prefix(100))) == backwards.prefix(100).map(\.outcome))
        #expect(world.store.keyReads == 50)
    }

    @Sendable static func batch(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let jobs = (0..<2048).map {
            world.job(Array("\($0)".utf8), by: AccountID(text: "p\($0 % 7)"), in: .room("!r\($0 % 5)"))
        }
        let written = try world.write(jobs).map { try $0.get() }
        #expect(Set(written.map(\.id)).count == 2048)
        #expect(written.count(where: \.isFirst) == 5)
        try world.restart()
        for run in OpenMessagesJob.runs(written.reversed().map(\.item)) {
            #expect(try world.read(run).allSatisfy { if case .text = $0 { true } else { false } })
        }
        #expect(OpenMessagesJob.runs(written.map(\.item)).map(\.count) == [1024, 1024])
        let tooMany = try world.read(written.map(\.item))
        #expect(tooMany.count == 2048 && tooMany[1023] == written[1023].outcome)
        #expect(tooMany[1024...].allSatisfy { $0 == .failed(.store) })
    }

    @Sendable static func lengths(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let texts = [0, 1, 250, 251, 252, 4096, 65_535, 65_536].map { [UInt8](repeating: 0x61, count: $0) }
        let written = try texts.map {
            try world.write([world.job($0, by: AccountID(text: "a"), in: .room("r"))])[0].get()
        }
        #expect(written[0].envelope.count == written[2].envelope.count)
        #expect(written[2].envelope.count < written[4].envelope.count)
        try world.restart()
        #expect(try world.read(written) == written.map(\.outcome))
        let long = world.job([UInt8](repeating: 1, count: 65_537), by: AccountID(text: "a"), in: .room("r"))
        #expect(try world.write([long]) == [.failure(.tooLong)])
    }
}
