import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// What an operator's monitoring reads: the alert rules and the dashboard of `config/monitoring`.
@Suite(.blocking, .serialized) struct MonitoringTests {
    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "config/monitoring")

    /// The queries of the dashboard's panels, with what Grafana puts in place of its variables.
    private static func queries() throws -> [String] {
        let page = try JSONValue(Array(Data(contentsOf: folder.appending(path: "dashboard.json"))))
        return page["panels"].array.flatMap { $0["targets"].array }.compactMap { $0["expr"].string }
            .map { $0.replacing("$__rate_interval", with: "1m").replacing("$instance", with: ".*") }
    }

    private static func alerts() throws -> String {
        try String(contentsOf: folder.appending(path: "alerts.yaml"), encoding: .utf8)
    }

    private static func page(_ metrics: FreePort) throws -> String {
        let answer = try WebClient(port: metrics.number).request("GET", "/metrics")
        guard answer.status == 200 else { throw PeerError("no metrics: \(answer.status)") }
        return answer.text
    }

    /// A gateway before IRC and one before HTTP, and what a message left in their metrics.
    private struct Desk {
        let metrics: [FreePort]
        let irc: Lab
        let http: GenericLab

        init() throws {
            metrics = [try FreePort(), try FreePort()]
            irc = try Lab(
                NgIRCd(), policy: "hosted", arguments: ["--metrics", "127.0.0.1:\(metrics[0].number)"])
            http = try GenericLab(policy: "hosted", metrics: "127.0.0.1:\(metrics[1].number)")
            let (alice, bob) = (try irc.person("alice"), try irc.person("bob"))
            alice.send("PRIVMSG bob :hello")
            try bob.expectMessage("hello")
            try http.alice.post("hello", in: GenericLab.conversation)
        }

        func stop() {
            irc.stop()
            http.stop()
        }
    }

    /// A name that no gateway has would never raise an alarm, and a panel would stay empty.
    @Test func allNamesExist() throws {
        let desk = try Desk()
        defer { desk.stop() }
        let pages = try desk.metrics.map { try Self.page($0) }.joined()
        let sources = try Self.queries() + [Self.alerts()]
        var names: Set<Substring> = []
        var events: Set<Substring> = []
        for text in sources {
            names.formUnion(text.matches(of: /pawl_[a-z_]+/).map(\.output))
            for found in text.matches(of: /event=~?"([^"]+)"/) {
                events.formUnion(found.output.1.split(separator: "|"))
            }
        }
        #expect(names.count > 15 && events.count > 8)
        for name in names.sorted() {
            #expect(pages.contains(try Regex("(?m)^\(name)[ {]")), "no metric \(name)")
        }
        for event in events.sorted() {
            #expect(pages.contains(try Regex("event=\"\(event)\"")), "no event \(event)")
        }
    }

    /// An operator finds the name of each metric in OPERATIONS.
    @Test func everyMetricIsDescribed() throws {
        let desk = try Desk()
        defer { desk.stop() }
        let operations = try String(
            contentsOf: Self.folder.appending(path: "../../deploy/OPERATIONS.md"), encoding: .utf8)
        let families = try desk.metrics.flatMap { metrics in
            try Self.page(metrics).matches(of: /# TYPE (\S+)/).map { String($0.output.1) }
        }
        #expect(families.count > 30)
        for name in Set(families).sorted() {
            #expect(operations.contains("`\(name)`") || operations.contains("`\(name){"), "\(name)")
        }
    }

    /// Debian's Prometheus with the shipped files, but for the addresses and a shorter interval.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
    func prometheusReadsAllOfIt() throws {
        for name in ["alerts.yaml", "alerts-gateways.yaml"] {
            let checked = try ChildProcess.run(
                "promtool", ["check", "rules", Self.folder.appending(path: name).path])
            #expect(checked.succeeded, "\(checked)")
        }
        let desk = try Desk()
        defer { desk.stop() }
        let scratch = try ScratchDirectory()
        _ = try scratch.write("alerts.yaml", Self.alerts())
        let targets = desk.metrics.map { "\"127.0.0.1:\($0.number)\"" }.joined(separator: ", ")
        let shipped = try String(contentsOf: Self.folder.appending(path: "prometheus.yaml"), encoding: .utf8)
        let prometheus = try Prometheus(
            configuration: shipped.replacing("\"127.0.0.1:9464\"", with: targets)
                .replacing("scrape_interval: 15s", with: "scrape_interval: 1s"), in: scratch)
        defer { prometheus.stop() }
        for query in try Self.queries() {
            // Rates need two scrapes.
            try eventually("data of \(query)", every: .milliseconds(200)) {
                try !prometheus.ask("query", ["query": query])["result"].array.isEmpty
            }
        }
        let rules = try prometheus.ask("rules", [:])["groups"].array.flatMap { $0["rules"].array }
        #expect(rules.count == 10)
        #expect(rules.allSatisfy { $0["health"].string != "err" }, "\(rules)")
        // An alert fires.
        desk.http.gateway.stop()
        try eventually("PawlDown", every: .milliseconds(200)) {
            let alerts = try prometheus.ask("alerts", [:])["alerts"].array
            return alerts.contains { $0["labels"]["alertname"].string == "PawlDown" }
        }
    }
}
