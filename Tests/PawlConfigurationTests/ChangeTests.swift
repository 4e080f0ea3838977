import Testing

@testable import PawlConfiguration

@Suite("What changed, and what was read")
struct ChangeTests {
    @Test func nothing() throws {
        #expect(try load().differences(from: load()).isEmpty)
        #expect(try report("policy: observe").description.hasSuffix("\nEvery value is the default."))
    }

    @Test func restartAndReload() throws {
        let yaml = """
            listen: [irc://127.0.0.1:7000]
            upstream: {url: irc://127.0.0.1:7001, network: net}
            data: /x
            metrics: {listen: ""}
            policy: hosted
            limits: {connections: 5}
            """
        let differences = try load(yaml).differences(from: load("upstream: {network: net}"))
        #expect(
            differences.filter(\.needsRestart).map(\.name) == [
                "listen", "upstream.url", "data", "storage_key.file", "metrics.listen", "admin.socket",
            ])
        #expect(
            differences.filter { !$0.needsRestart }.map(\.description) == [
                "policy: observe → hosted (applied)", "limits.connections: 10000 → 5 (applied)",
            ])
    }

    @Test func onlyTheListedKeysNeedARestart() {
        #expect(
            ConfigurationKey.table.filter { $0.effect == .restart }.map(\.name) == [
                "listen", "upstream.url", "upstream.network", "upstream.earlier_networks", "queue.credentials",
                "queue.request_age", "push.url", "push.secret_file", "push.ca", "control_plane.socket",
                "control_plane.socket_mode", "data",
                "storage_key.file", "storage_key.environment", "store.url", "store.pooled",
                "store.standby", "store.gateway", "history.retention",
                "limits.message_fragments",
                "limits.pending_requests_per_account",
                "limits.request_age", "limits.evidence_rows", "limits.compress_above", "metrics.listen",
                "admin.socket", "log.level", "log.format",
            ])
    }

    @Test func reportOfAChange() throws {
        let text = try report(
            "policy: hosted\nbots:\n  - weather host=bots.example.org\nlog: {level: info}", ["PAWL_DATA": "/x"],
            overrides: .init(upstream: "irc://localhost:1")
        ).description
        let lines = text.split(separator: "\n").dropFirst()
        #expect(
            text.contains(
                " is good: 3 of \(ConfigurationKey.table.count) keys from the file, 1 from the environment, 1 "
                    + "from the command line."))
        #expect(
            lines.joined(separator: "\n").replacing(/\/[^ ]*pawl\.yaml/, with: "FILE") == """
                Not the default:
                  upstream.url: irc://localhost:1
                    from --upstream on the command line; the default is irc://127.0.0.1:6668
                  policy: hosted
                    from FILE line 1; the default is observe
                  bots: [weather host=bots.example.org]
                    from FILE line 2; the default is []
                  data: /x
                    from PAWL_DATA in the environment; the default is /var/lib/pawl
                """)
    }

    @Test func reportWithoutAFile() throws {
        #expect(
            try ConfigurationReport(protocols: protocols).description == """
                The configuration without a file is good: 0 of \(ConfigurationKey.table.count) keys from the file, \
                0 from the environment, 0 from the command line.
                Every value is the default.
                """)
    }
}
