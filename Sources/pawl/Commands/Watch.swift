// `pawl watch`: the status with rates, again and again. It outlives the gateway, because operators watch restarts and
// upgrades with it. The rates are made here, of two reports: the gateway keeps nothing for those who watch.

import ArgumentParser
import Foundation
import Glibc
import Protection
import Reports

/// `pawl watch`
struct Watch: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the status repeatedly, in place, with rates.",
        discussion: """
            Fits a terminal of 80x24; pawl status has the whole lists. It goes on while the gateway restarts. With --json each \
            report is one line: time, reachable, perSecond, and status as pawl status --json has it.
            """)
    @OptionGroup var common: CommonOptions
    @Option(help: "Seconds between two reports, \(AdminSubscription.intervalText).") var every = 1.0
    @Option(help: "Stop after this many reports; 0 never stops.") var count = 0
    @Flag(help: "Stop after one report, with the rates of one interval.") var once = false

    /// Ours: the longest pause before the gateway is asked for again, in seconds.
    private static let longestPause = 1.0

    func validate() throws {
        guard AdminSubscription.intervals.contains(every) else {
            throw ValidationError("--every is \(AdminSubscription.intervalText).")
        }
        guard count >= 0 else { throw ValidationError("--count must not be negative.") }
        guard !once || count == 0 else { throw ValidationError("Give --once or --count.") }
    }

    func run() async throws {
        let client = AdminClient(common)
        let log = Shared(WatchLog(skipped: once ? 1 : 0, limit: once ? 1 : count))
        while true {
            do {
                try await client.watch(AdminSubscription(json: true, every: every)) { [json = common.json] event in
                    if case .ended(let answer) = event { try Self.end(answer) }
                    return Self.show(log.withLock { $0.take(event, at: SystemClock.now()) }, asJSON: json)
                }
                return
            } catch let error as AdminClient.NoAnswer {
                guard !once, log.withLock({ $0.hasReport }) else { throw error.report() }
                let shown = log.withLock { $0.lose(error.text, at: SystemClock.now(), every: every) }
                guard Self.show(shown, asJSON: common.json) else { return }
            }
            try await Task.sleep(for: .seconds(min(every, Self.longestPause)))
        }
    }

    /// The gateway ends a subscription. One that was not read in time, as by a program that is stopped, begins again.
    private static func end(_ answer: AdminAnswer) throws {
        if answer.code == FailureCode.slowReader.rawValue { throw AdminClient.NoAnswer(text: answer.error) }
        try AdminClient.throwFailure(of: answer)
    }

    /// Prints a report, if there is one.
    ///
    /// - Returns: whether to go on.
    private static func show(_ shown: WatchLog.Shown?, asJSON: Bool) -> Bool {
        guard let shown else { return true }
        if asJSON {
            print(WatchLine(shown.report).json)
        } else if isatty(1) == 1 {
            // Without line wrap, which wide characters could cause. The cursor goes to the top left, and the rest of the last
            // report is cleared: nothing flickers, nothing scrolls.
            let page = WatchPage.text(shown.report, in: TerminalSize.output ?? .usual)
            print("\u{1B}[?7l\u{1B}[H\u{1B}[J\(page)\u{1B}[?7h")
        } else {
            print(WatchPage.text(shown.report, in: .unlimited))
        }
        fflush(nil)
        return !shown.isLast
    }
}

/// Characters that a page may have.
struct TerminalSize: Equatable {
    var columns: Int
    var rows: Int

    static let unlimited = TerminalSize(columns: .max, rows: .max)
    static let usual = TerminalSize(columns: 80, rows: 24)

    /// The size of the terminal on standard output; nil if it is none, or does not say.
    static var output: TerminalSize? {
        var size = winsize()
        guard ioctl(1, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else { return nil }
        return TerminalSize(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }
}

/// What is known of a gateway that is watched.
struct WatchReport: Sendable {
    var at: Timestamp
    /// The last status; nil if there was none.
    var status: StatusReport?
    /// Nil without two reports of the same process.
    var rates: WatchRates.PerSecond?
    /// Why there is no newer status.
    var problem: String?
    /// Since when the gateway does not answer, in milliseconds since 1970; nil if it does.
    var lostSince: Int64?
}

/// Makes reports of the events of a subscription, and of the ends of its connection.
struct WatchLog: Sendable {
    struct Shown: Sendable {
        var report: WatchReport
        /// Whether it is the last one that was asked for.
        var isLast: Bool
    }

    private var report = WatchReport(at: Timestamp(monotonic: 0, wall: 0))
    private var rates = WatchRates()
    private var skipped: Int
    private let limit: Int
    private var count = 0

    /// - Parameters:
    ///   - skipped: reports at the beginning that are not shown.
    ///   - limit: reports to show; 0 for no limit.
    init(skipped: Int = 0, limit: Int = 0) { (self.skipped, self.limit) = (skipped, limit) }

    /// Whether the gateway has answered once.
    var hasReport: Bool { report.at.monotonic != 0 }

    /// Takes an event.
    ///
    /// - Returns: the report to show; nil if it is skipped.
    mutating func take(_ event: AdminEvent, at now: Timestamp) -> Shown? {
        if report.lostSince != nil { rates = WatchRates() }
        (report.at, report.lostSince) = (now, nil)
        if case .status(let answer) = event {
            do {
                report.problem = answer.exit == 0 ? nil : answer.error
                if answer.exit == 0 {
                    report.status = try JSONDecoder().decode(StatusReport.self, from: Data(answer.out.utf8))
                }
            } catch {
                report.problem = "The gateway has another version, and its status cannot be read. See pawl version."
            }
        }
        if report.problem == nil, let status = report.status { rates.add(status, at: now) }
        report.rates = rates.perSecond
        guard skipped == 0 else {
            skipped -= 1
            return nil
        }
        return shown()
    }

    /// Takes note that the gateway does not answer.
    ///
    /// - Returns: the report to show; nil if one was shown less than an interval ago.
    mutating func lose(_ problem: String, at now: Timestamp, every: Double) -> Shown? {
        guard report.lostSince == nil || Double(now.monotonic - report.at.monotonic) >= every * 1e9 else { return nil }
        if report.lostSince == nil { report.lostSince = now.wall }
        (report.at, report.rates, report.problem) = (now, nil, problem)
        return shown()
    }

    private mutating func shown() -> Shown {
        count += 1
        return Shown(report: report, isLast: limit > 0 && count >= limit)
    }
}

/// Rates of the counters of one gateway.
struct WatchRates: Sendable {
    struct PerSecond: Codable, Equatable, Sendable {
        var plaintext: Double
        var gateway: Double
        var device: Double
        var exempt: Double
        var refused: Double
        var connections: Double
        /// Requests that the backend has performed.
        var requests: Double
    }

    /// Ours: nanoseconds that a rate covers. A second has too few messages for a steady number.
    private static let window: Int64 = 10_000_000_000
    /// Ours: nanoseconds that it covers at least; a report after an act can follow another one at once.
    private static let shortest: Int64 = 50_000_000
    /// Ours: samples that are kept. A window has fewer, unless operators act hundreds of times in it.
    private static let sampleLimit = 256

    /// The counters of a status, which only grow while its process lives; the time of that process is one of them.
    private struct Counts: Sendable {
        var uptime: Int64
        var messages: StatusReport.Share
        var connections: Int
        var requests: Int

        /// Nil if the gateway has no counters since its start.
        init?(_ status: StatusReport) {
            guard let totals = status.totals else { return nil }
            (uptime, messages, connections) = (status.uptimeSeconds, totals.messages, totals.connections)
            requests = status.requests.done
        }

        /// Whether one of them is less than it was: they are those of another process.
        func beginAgain(after last: Counts) -> Bool {
            let counters: [KeyPath<Counts, Int>] = [
                \.messages.plaintext, \.messages.gateway, \.messages.device, \.messages.exempt, \.messages.refused,
                \.connections, \.requests,
            ]
            return uptime < last.uptime || counters.contains { self[keyPath: $0] < last[keyPath: $0] }
        }
    }

    private var samples: [(at: Int64, counts: Counts)] = []

    mutating func add(_ status: StatusReport, at now: Timestamp) {
        guard let counts = Counts(status) else { return samples = [] }
        if let last = samples.last?.counts, counts.beginAgain(after: last) { samples = [] }
        samples.append((now.monotonic, counts))
        // The sample at the beginning of the window, or before it, stays.
        let kept = samples.lastIndex { $0.at <= now.monotonic - Self.window } ?? 0
        samples.removeFirst(max(kept, samples.count - Self.sampleLimit))
    }

    /// Nil without two samples.
    var perSecond: PerSecond? {
        guard let first = samples.first, let last = samples.last, last.at - first.at >= Self.shortest else {
            return nil
        }
        let seconds = Double(last.at - first.at) / 1e9
        func rate(_ counter: KeyPath<Counts, Int>) -> Double {
            Double(last.counts[keyPath: counter] - first.counts[keyPath: counter]) / seconds
        }
        return PerSecond(
            plaintext: rate(\.messages.plaintext), gateway: rate(\.messages.gateway),
            device: rate(\.messages.device), exempt: rate(\.messages.exempt), refused: rate(\.messages.refused),
            connections: rate(\.connections), requests: rate(\.requests))
    }
}

/// The line of a report with `--json`. The names of its members never change.
struct WatchLine: Encodable {
    var time: String
    var reachable: Bool
    /// Since when the gateway does not answer.
    var since: String?
    var problem: String?
    var perSecond: WatchRates.PerSecond?
    /// The last one that is known.
    var status: StatusReport?

    init(_ report: WatchReport) {
        time = Table.time(report.at.wall)
        reachable = report.lostSince == nil
        since = report.lostSince.map(Table.time)
        (problem, perSecond, status) = (report.problem, report.rates, report.status)
    }

    var json: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and finite numbers can always be encoded.
        return (try? encoder.encode(self)).map { Printable.line(String(decoding: $0, as: UTF8.self)) } ?? "{}"
    }
}

/// The page of a report, for a terminal.
enum WatchPage {
    /// Returns lines that fit, and leaves the last row of the terminal to its cursor.
    static func text(_ report: WatchReport, in size: TerminalSize) -> String {
        var lines = [title(report)]
        guard let status = report.status else {
            lines += notes([report.problem].compactMap(\.self), size)
            return fitted(lines, size)
        }
        lines += StatusText.situation(status)
        lines.append(queue(status, report.rates))
        let rates = report.rates.map { [$0.plaintext, $0.gateway, $0.device, $0.exempt, $0.refused].map(decimal) }
        lines += [
            "", StatusText.messages(status, first: ["a second"] + (rates ?? Array(repeating: "-", count: 5))), "",
        ]
        lines = lines.flatMap { $0.split(separator: "\n", omittingEmptySubsequences: false).map(String.init) }
        let notes = notes([report.problem].compactMap(\.self) + status.warnings, size)
        let blockers = StatusText.blockers(status).split(separator: "\n").map(String.init)
        // Both get half of what is left, and what the other one does not need.
        let room = max(rowLimit(size) - lines.count, 0)
        let forNotes = min(notes.count, max(room / 2, room - blockers.count))
        lines += cut(notes, to: forNotes) + cut(blockers, to: room - forNotes)
        return fitted(lines, size)
    }

    private static func title(_ report: WatchReport) -> String {
        let time = Table.time(report.at.wall)
        if let since = report.lostSince { return "\(time)  NO ANSWER since \(Table.time(since)); asks again" }
        guard let status = report.status else { return "\(time)  no status" }
        return "\(time)  up \(age(status.uptimeSeconds))"
            + (report.rates.map { "; \(decimal($0.connections)) new connections a second" } ?? "")
    }

    private static func queue(_ status: StatusReport, _ rates: WatchRates.PerSecond?) -> String {
        let requests = status.requests
        return "queue          \(requests.waiting) waiting"
            + (requests.held > 0 ? ", \(requests.held) held" : "")
            + (requests.oldestSeconds.map { ", the oldest for \(age($0))" } ?? "")
            + (requests.withoutLogin.map { $0 > 0 ? ", \($0) for a login" : "" } ?? "")
            + (rates.map { "; \(decimal($0.requests)) done a second" } ?? "")
            + "; \(requests.done) done, \(requests.dead) dead"
    }

    /// A rate with one decimal.
    private static func decimal(_ rate: Double) -> String { String(format: "%.1f", rate) }

    private static func age(_ seconds: Int64) -> String {
        switch seconds {
        case ..<120: "\(seconds) s"
        case ..<7200: "\(seconds / 60) min"
        case ..<172_800: "\(seconds / 3600) h \(seconds % 3600 / 60) min"
        default: "\(seconds / 86_400) days"
        }
    }

    private static func rowLimit(_ size: TerminalSize) -> Int { size.rows == .max ? .max : max(size.rows - 1, 1) }

    /// Notes as lines of words.
    private static func notes(_ texts: [String], _ size: TerminalSize) -> [String] {
        texts.flatMap { text in
            var lines = ["Note:"]
            for word in Printable.line(text.replacing("\n", with: " ")).split(separator: " ") {
                if lines[lines.count - 1].count + 1 + word.count > size.columns { lines.append("     ") }
                lines[lines.count - 1] += " " + word
            }
            return lines
        }
    }

    /// The first lines, the last of which says how many there are not.
    private static func cut(_ lines: [String], to count: Int) -> [String] {
        guard lines.count > count, count > 0 else { return Array(lines.prefix(max(count, 0))) }
        return lines.prefix(count - 1) + ["… \(lines.count - count + 1) more lines: pawl status"]
    }

    private static func fitted(_ lines: [String], _ size: TerminalSize) -> String {
        lines.prefix(rowLimit(size)).map { line in
            line.count > size.columns ? line.prefix(size.columns - 1) + "…" : line
        }.joined(separator: "\n")
    }
}
