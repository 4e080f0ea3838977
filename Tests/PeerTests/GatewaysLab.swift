import Foundation
import PeerKit
import TestKit
import Testing

/// Several gateways on one database behind HAProxy, with the configuration that operators get.
final class GatewaysLab {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// The path of a delivered configuration of HAProxy.
    static func file(_ name: String) -> String { root.appending(path: "config/\(name).cfg").path }

    static let quickstart = root.appending(path: "deploy/quickstart").path
    static let alerts = root.appending(path: "config/monitoring/alerts-gateways.yaml").path
    static let page = root.appending(path: "deploy/OPERATIONS.md").path

    let database: PostgreSQL
    let gateways: [PawlProcess]
    /// Of /ready on each gateway's machine, as `haproxy-ready.cfg` passes it on.
    private let doors: [HAProxy]
    private let checks: [FreePort]
    private let balancer: HAProxy
    private let key: ScratchDirectory

    /// Where clients connect.
    var port: UInt16 { balancer.port }

    /// Starts the first one, which makes the key, and then the others, which stand by.
    ///
    /// - Parameters:
    ///   - upstream: the backend's port; 1 for none, and then no gateway becomes ready.
    ///   - scheme: `irc` or `http`, for listeners and backend.
    init(
        upstream: UInt16, policy: String, count: Int = 2, scheme: String = "irc", environment: [String: String] = [:]
    ) throws {
        database = try PostgreSQL()
        key = try ScratchDirectory()
        checks = try (0..<count).map { _ in try FreePort() }
        var started: [PawlProcess] = []
        for (number, check) in checks.enumerated() {
            var options = PawlProcess.Options(policy: policy, arguments: ["--metrics", "127.0.0.1:\(check.number)"])
            (options.listenScheme, options.upstreamScheme) = (scheme, scheme)
            options.startTexts = ["pawl is ready", "pawl stands by"]
            options.environment = [
                "PAWL_STORE_URL": database.url, "PAWL_STORE_GATEWAY": Self.name(number),
                "PAWL_STORAGE_KEY_FILE": key.file("storage.key"), "PAWL_ACCEPT_PROXY_PROTOCOL": "true",
                "PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "0",
            ].merging(environment) { $1 }
            started.append(try PawlProcess(upstream: upstream, options))
        }
        gateways = started
        doors = try checks.map { try Self.door($0, balancer: "127.0.0.1", prometheus: "127.0.0.9") }
        let ports = zip(gateways, doors).map { ($0.port, $1.port) }
        let text = try String(contentsOfFile: Self.file("haproxy-gateways"), encoding: .utf8)
        balancer = try HAProxy { port in
            // Its servers are on three machines and have the same ports; here they are on one.
            let lines = text.replacing("bind :6697", with: "bind 127.0.0.1:\(port)")
                .replacing("maxconn 50000", with: "maxconn 500")
                .split(separator: "\n", omittingEmptySubsequences: false).filter { !$0.contains("server gateway") }
            let servers = ports.enumerated().map { number, ports in
                "    server gateway\(number + 1) 127.0.0.1:\(ports.0) port \(ports.1)"
            }
            return (lines + servers.map { $0[...] }).joined(separator: "\n") + "\n"
        }
        if upstream != 1 { _ = try serving() }
    }

    /// HAProxy on the machine of a gateway, which passes on its /ready, for these addresses.
    private static func door(_ check: FreePort, balancer: String, prometheus: String) throws -> HAProxy {
        let text = try String(contentsOfFile: file("haproxy-ready"), encoding: .utf8)
        return try HAProxy { port in
            text.replacing("10.0.0.11:9465", with: "127.0.0.1:\(port)").replacing("10.0.0.10", with: balancer)
                .replacing("10.0.0.20", with: prometheus).replacing("127.0.0.1:9464", with: "127.0.0.1:\(check.number)")
        }
    }

    /// One that takes this machine for that of Prometheus.
    func doorForPrometheus(_ number: Int) throws -> HAProxy {
        try Self.door(checks[number], balancer: "127.0.0.9", prometheus: "127.0.0.1")
    }

    /// The port at which HAProxy on the machine of a gateway passes on its /ready.
    func door(_ number: Int) -> UInt16 { doors[number].port }

    static func name(_ number: Int) -> String { "gateway\(number + 1)" }

    func stop() {
        // Ones that are stopped by a signal could not end.
        for gateway in gateways { gateway.signal(SIGCONT) }
        for gateway in gateways { gateway.stop() }
        database.stop()
    }

    // MARK: Who serves

    /// The status of a gateway's /ready; nil if nothing answers.
    func ready(_ number: Int) -> Int? {
        try? WebClient(port: checks[number].number).request("GET", "/ready", timeout: .seconds(20)).status
    }

    /// Waits until one serves, and returns its number.
    ///
    /// - Parameter stopped: one that is not asked, because it is stopped by a signal.
    func serving(except stopped: Int? = nil) throws -> Int {
        var found: Int?
        try eventually("a gateway that serves", every: .milliseconds(20)) {
            found = gateways.indices.first { $0 != stopped && ready($0) == 200 }
            return found != nil
        }
        guard let found else { throw PeerError("no gateway serves") }
        return found
    }

    /// Starts those that have ended, as a service manager does.
    func supervise() throws {
        for gateway in gateways where !gateway.isRunning { try gateway.start() }
    }

    /// What `pawl gateways` of one of them says: states by name.
    func states(_ number: Int) throws -> [String: String] {
        let output = try gateways[number].admin(["gateways", "--json"])
        guard output.succeeded else { throw PeerError("\(output)") }
        var states: [String: String] = [:]
        for gateway in output.json["gateways"].array {
            states[gateway["name"].string ?? "-"] = gateway["state"].string ?? "-"
        }
        return states
    }

    // MARK: What they have

    func rows(_ number: Int, _ state: String? = nil) throws -> [JSONValue] {
        let words = ["queue", "list", "--limit", "100000", "--json"] + (state.map { ["--state", $0] } ?? [])
        let output = try gateways[number].admin(words)
        guard output.succeeded else { throw PeerError("\(output)") }
        return output.json.array
    }

    func ids(_ number: Int) throws -> Set<String> { Set(try rows(number).compactMap { $0["id"].string }) }

    /// The samples of `/metrics`, by name and labels.
    func samples(_ number: Int) throws -> [String: Int] {
        let page = try WebClient(port: checks[number].number).request("GET", "/metrics").text
        var samples: [String: Int] = [:]
        for line in page.split(separator: "\n") where line.hasPrefix("pawl_") {
            let parts = line.split(separator: " ")
            samples[String(parts[0])] = parts.count == 2 ? Int(parts[1]) : nil
        }
        return samples
    }

    /// Demands that no ratchet was stepped twice: then its peer could not read.
    ///
    /// `open_failed_forgotten` is no failure: a message that an earlier gateway has opened was sent once more.
    func expectAllWasReadable(_ number: Int) throws {
        for (name, count) in try samples(number) where count > 0 && !name.contains("open_failed_forgotten") {
            let isFailure = ["open_failed_", "unreadable_sessions", "unexpected_events"]
                .contains { name.contains($0) }
            #expect(!isFailure, "\(name) is \(count)")
        }
    }
}

/// What happens to gateways.
enum GatewayFault: CaseIterable, Sendable {
    /// SIGKILL of the one that serves.
    case kill
    /// SIGSTOP of it, until another one serves.
    case stop
    /// `pawl gateways drain` of it.
    case drain
    /// SIGQUIT of the database's server, which is started again.
    case database

    /// Lets it happen, and returns the number of the gateway that serves then.
    ///
    /// - Parameter whileStopped: called with the number of a stopped gateway, when another one serves.
    func happen(to lab: GatewaysLab, whileStopped: (Int) throws -> Void = { _ in }) throws -> Int {
        let first = try lab.serving()
        let gateway = lab.gateways[first]
        switch self {
        case .kill: gateway.crash()
        case .stop:
            gateway.signal(SIGSTOP)
            _ = try lab.serving(except: first)
            try whileStopped(first)
            gateway.signal(SIGCONT)
            // Its shards are another one's: it finds that out and ends, and the service manager starts it again.
            try eventually("end of the gateway that was stopped") { !gateway.isRunning }
            #expect(gateway.stop() == .exited(76))
        case .drain:
            let output = try gateway.admin(["gateways", "drain", GatewaysLab.name(first)])
            #expect(output.succeeded, "\(output)")
            try eventually("end of the gateway that drains") { !gateway.isRunning }
            #expect(gateway.stop() == .exited(0))
        case .database:
            lab.database.stop()
            Thread.sleep(forTimeInterval: 1)
            try lab.database.start()
        }
        if self != .database {
            let next = try lab.serving()
            #expect(next != first)
            try lab.supervise()
            return next
        }
        // A commit that was under way has an unknown outcome, and its gateway ends.
        var found: Int?
        try eventually("a gateway that serves", every: .milliseconds(100)) {
            try lab.supervise()
            found = lab.gateways.indices.first { lab.ready($0) == 200 }
            return found != nil
        }
        return try #require(found)
    }
}
