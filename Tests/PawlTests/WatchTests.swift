import ArgumentParser
import Foundation
import Protection
import Testing

@testable import Reports
@testable import pawl

/// The reports of `pawl watch`: rates of two statuses, and a page that fits a terminal.
@Suite struct WatchTests {
    /// A status, as a gateway sends it.
    private static func answer(
        uptime: Int64 = 10, sealed: Int = 0, blockers: [StatusReport.Blocker] = [], warnings: [String] = []
    ) throws -> AdminAnswer {
        var messages = StatusReport.Share(period: "since the start")
        messages.gateway = sealed
        let shares = ["this hour", "last 24 hours", "last 7 days"].map { StatusReport.Share(period: $0) }
        return try .json(
            StatusReport(
                policy: "hosted", policySource: "set by an operator", accountPolicies: 3,
                upstream: "irc://127.0.0.1:6668", uptimeSeconds: uptime, connections: 12,
                accounts: .init(
                    legacy: 40, askedForCapability: 2, custodyGateway: 38, custodyDevice: 2, connectedNow: 12),
                conversations: .init(gateway: 7, device: 1), shares: shares,
                totals: .init(messages: messages, connections: 20), queue: [:], requests: .init(), blockers: blockers,
                warnings: warnings))
    }

    private static func at(_ seconds: Double) -> Timestamp {
        Timestamp(monotonic: Int64((1000 + seconds) * 1e9), wall: 1_700_000_000_000 + Int64(seconds * 1000))
    }

    private static let small = TerminalSize.usual

    @Test func ratesAreThoseOfTheLastSeconds() throws {
        var log = WatchLog()
        func rate(_ sealed: Int, _ seconds: Double) throws -> Double? {
            log.take(.status(answer: try Self.answer(uptime: Int64(seconds), sealed: sealed)), at: Self.at(seconds))?
                .report.rates?.gateway
        }
        #expect(try rate(100, 0) == nil)
        #expect(try rate(110, 1) == 10)
        #expect(try rate(110, 2) == 5)
        // A second report at once, after an act of an operator, divides by nothing.
        #expect(try rate(110, 2) == 5)
        #expect(try rate(110, 12.5) == 0)
        #expect(log.take(.unchanged, at: Self.at(13))?.report.rates?.gateway == 0)
    }

    @Test func countersThatBeginAgainHaveNoRate() throws {
        var log = WatchLog()
        _ = log.take(.status(answer: try Self.answer(uptime: 50, sealed: 100)), at: Self.at(0))
        _ = log.take(.status(answer: try Self.answer(uptime: 51, sealed: 101)), at: Self.at(1))
        // Another process, which has had more messages already.
        let restarted = log.take(.status(answer: try Self.answer(uptime: 1, sealed: 500)), at: Self.at(2))
        #expect(restarted?.report.rates == nil)
        let next = log.take(.status(answer: try Self.answer(uptime: 2, sealed: 502)), at: Self.at(3))
        #expect(next?.report.rates?.gateway == 2)
    }

    @Test func aLostGatewayIsShownOncePerInterval() throws {
        var log = WatchLog(limit: 4)
        func take(_ seconds: Double) throws -> WatchLog.Shown {
            let shown = log.take(.status(answer: try Self.answer(uptime: 1)), at: Self.at(seconds))
            return try #require(shown)
        }
        func lose(_ seconds: Double) -> WatchReport? {
            log.lose("No gateway answers.", at: Self.at(seconds), every: 5)?.report
        }
        #expect(!log.hasReport)
        #expect(try !take(0).isLast && log.hasReport)
        let lost = try #require(lose(1))
        #expect(lost.lostSince == Self.at(1).wall && lost.status != nil && lost.rates == nil)
        #expect(lose(2) == nil)
        #expect(lose(6)?.lostSince == Self.at(1).wall)
        let page = WatchPage.text(lost, in: Self.small)
        #expect(page.contains("NO ANSWER since") && page.contains("No gateway answers.") && page.contains("hosted"))
        let line = WatchLine(lost).json
        #expect(line.contains(#""reachable":false"#) && line.contains(#""problem":"No gateway"#))
        let back = try take(7)
        #expect(back.isLast && back.report.lostSince == nil && back.report.problem == nil && back.report.rates == nil)
    }

    /// Another version of the program, or a store that cannot be read: the page says so and keeps what it has.
    @Test func aStatusThatCannotBeReadIsAProblem() throws {
        var log = WatchLog()
        _ = log.take(.status(answer: try Self.answer()), at: Self.at(0))
        for answer in [AdminAnswer.text("{}"), .failure(.init(.notStored, "The disk\nis full."))] {
            let shown = log.take(.status(answer: answer), at: Self.at(1))
            let report = try #require(shown).report
            #expect(report.problem != nil && report.status?.policy == "hosted" && report.lostSince == nil)
        }
        // A gateway of an earlier version has no counters since its start.
        var members = try #require(
            try JSONSerialization.jsonObject(with: Data(try Self.answer().out.utf8)) as? [String: Any])
        members["totals"] = nil
        let earlier = String(decoding: try JSONSerialization.data(withJSONObject: members), as: UTF8.self)
        let shown = log.take(.status(answer: .text(earlier)), at: Self.at(2))
        let report = try #require(shown).report
        #expect(report.problem == nil && report.rates == nil && report.status?.totals == nil)
    }

    @Test(arguments: [0, 1, 3, 30], [0, 1, 6]) func thePageFits(blockers: Int, warnings: Int) throws {
        let name = String(repeating: "\u{1F468}\u{200D}\u{1F469}name", count: 30)
        var log = WatchLog()
        let shown = log.take(
            .status(
                answer: try Self.answer(
                    uptime: .max, sealed: .max,
                    blockers: (0..<blockers).map { .init(what: "outsider", name: "\($0)\(name)", messages: .max) },
                    warnings: Array(repeating: String(repeating: "many words ", count: 20), count: warnings))),
            at: Self.at(0))
        for size in [Self.small, TerminalSize(columns: 20, rows: 5), TerminalSize(columns: 1, rows: 1)] {
            let lines = WatchPage.text(try #require(shown).report, in: size)
                .split(separator: "\n", omittingEmptySubsequences: false)
            #expect(lines.count <= max(size.rows - 1, 1) && lines.allSatisfy { $0.count <= size.columns })
        }
        let lines = WatchPage.text(try #require(shown).report, in: Self.small)
        #expect(lines.contains("a second") && lines.contains("last 7 days") && lines.contains("queue"))
        #expect(warnings == 0 || lines.contains("Note: many words"))
        #expect(blockers == 0 || lines.contains("outsider") || lines.contains("more lines"))
        let whole = WatchPage.text(try #require(shown).report, in: .unlimited)
        #expect(whole.components(separatedBy: "outsider ").count - 1 >= blockers)
        #expect(whole.components(separatedBy: "Note: ").count - 1 == warnings && !whole.contains("pawl status"))
    }

    @Test func theOptionsExcludeEachOther() {
        #expect(throws: (any Error).self) { try Watch.parse(["--once", "--count", "2"]) }
        #expect(throws: (any Error).self) { try Watch.parse(["--count=-1"]) }
        #expect((try? Watch.parse(["--once", "--json"])) != nil)
    }
}
