import Protection
import Testing

@testable import PawlConfiguration

@Suite("Command line over environment over file over defaults")
struct LayerTests {
    @Test func defaults() throws {
        let configuration = try load()
        #expect(configuration.listen == [.init(scheme: .init(.irc, .loopback), host: "127.0.0.1", port: 6667)])
        #expect(configuration.upstream.url == .init(scheme: .init(.irc, .loopback), host: "127.0.0.1", port: 6668))
        #expect(configuration.upstream.network == nil)
        #expect(configuration.upstream.connectTimeout == .seconds(10))
        #expect(configuration.upstream.flood == .init(burst: 6, linesPerSecond: 1, bytesPerSecond: 0))
        #expect(configuration.upstream.tls == .init(authorities: nil, verify: true, serverName: nil))
        #expect(configuration.policy == .observe)
        #expect(configuration.storageKey == .file("/var/lib/pawl/storage.key"))
        #expect(configuration.admin.socket == "/var/lib/pawl/pawl.sock")
        #expect(configuration.metrics.listen == .init(host: "127.0.0.1", port: 9464))
        #expect(configuration.services.count == 2)
        #expect(configuration.bots.isEmpty)
        #expect(configuration.tls == nil)
        #expect(configuration.limits.heldLines == 512)
        #expect(configuration.log.level == .info)
    }

    @Test func strongerLayersWin() throws {
        let yaml = "policy: hosted\ndata: /file\nlog:\n  level: debug\n"
        let environment = ["PAWL_POLICY": "required", "PAWL_DATA": "/environment"]
        let overrides = PawlConfiguration.Overrides(policy: "off")
        let configuration = try load(yaml, environment, overrides: overrides)
        #expect(configuration.policy == .off)
        #expect(configuration.data == "/environment")
        #expect(configuration.log.level == .debug)
        #expect(try load(yaml, environment).policy == .required)
        #expect(try load(yaml).policy == .hosted)
    }

    @Test func commandLineAlone() throws {
        let overrides = PawlConfiguration.Overrides(
            listen: ["irc://127.0.0.1:7000", "irc://[::1]:7000"], upstream: "irc://localhost:7001", policy: "observe",
            data: "/tmp/pawl/")
        let configuration = try load(overrides: overrides)
        #expect(configuration.listen.map(\.description) == ["irc://127.0.0.1:7000", "irc://[::1]:7000"])
        #expect(configuration.upstream.network == nil)
        #expect(configuration.storageKey == .file("/tmp/pawl/storage.key"))
    }

    @Test func listsInTheEnvironment() throws {
        let environment = [
            "PAWL_LISTEN": "irc://127.0.0.1:1, irc+insecure://0.0.0.0:2", "PAWL_SERVICES": "",
            "PAWL_ACCEPT_TRUSTED": "10.0.0.0/8", "PAWL_ACCEPT_PROXY_PROTOCOL": "yes",
            "PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "2.5",
        ]
        let configuration = try load(nil, environment)
        #expect(configuration.listen.map(\.port) == [1, 2])
        #expect(configuration.services.isEmpty)
        #expect(configuration.accept.trusted.map(\.description) == ["10.0.0.0/8"])
        #expect(configuration.accept.proxyProtocol)
        #expect(configuration.upstream.flood.linesPerSecond == 2.5)
    }

    /// YAML 1.1 takes a bare `off` for a truth value; here it is the policy.
    @Test func bareOffIsAPolicy() throws {
        #expect(try load("policy: off").policy == .off)
        #expect(try load("detection: {ask_version: on}").detection.askVersion)
    }

    @Test func emptyTextUnsets() throws {
        let yaml = "tls: {certificate: /c, key: /k}\nmetrics: {listen: \"\"}"
        let configuration = try load(yaml, ["PAWL_TLS_CERTIFICATE": "", "PAWL_TLS_KEY": ""])
        #expect(configuration.tls == nil)
        #expect(configuration.metrics.listen == nil)
    }

    @Test func emptyFilesAndSections() throws {
        let defaults = try load()
        for yaml in ["", "# nothing\n", "---\n", "upstream:\n", "upstream:\n  tls:\n", "{}"] {
            #expect(try load(yaml) == defaults)
        }
    }

    @Test func storageKeyInTheEnvironment() throws {
        let yaml = "storage_key: {environment: PAWL_STORAGE_KEY}"
        #expect(try load(yaml, ["PAWL_STORAGE_KEY": "c2VjcmV0"]).storageKey == .environment("PAWL_STORAGE_KEY"))
    }

    @Test func otherVariablesAreNobodysBusiness() throws {
        let environment = [
            "HOME": "/root", "pawl_policy": "off", "PAWL_SERVICE_HOST": "10.1.2.3", "PAWL_SERVICE_PORT": "6667",
            "PAWL_SERVICE_PORT_IRC": "6667", "PAWL_PORT": "tcp://10.1.2.3:6667",
            "PAWL_PORT_6667_TCP_ADDR": "10.1.2.3",
        ]
        #expect(try load(nil, environment) == load())
    }

    @Test func anchorsAndAliases() throws {
        let yaml = """
            bots: &bots ["weather host=bots.example.org"]
            services: *bots
            refusal: {room: &text "no", outsider: *text}
            """
        let configuration = try load(yaml)
        #expect(configuration.services == configuration.bots)
        #expect(configuration.refusal.outsider.template == "no")
    }
}
