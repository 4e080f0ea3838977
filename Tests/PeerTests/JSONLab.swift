import Foundation
import PeerKit
import TestKit

/// What a policy does to people whose clients cannot encrypt, all of whom are behind the gateway.
enum LegacyOutcome: String, CaseIterable, Sendable {
    case off, observe, opportunistic, hosted, required

    var policy: String { rawValue }
    /// The backend sees what is written.
    var isPlain: Bool { self == .off || self == .observe || self == .opportunistic }

    static let plain = allCases.filter(\.isPlain)
}

enum JSONLab {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func mapping(_ name: String) -> String { root.appending(path: "config/mappings/\(name).yaml").path }

    /// A gateway that speaks HTTP on both sides.
    static func gateway(
        _ mapping: String, upstream: UInt16, policy: String, environment: [String: String] = [:], metrics: String = ""
    ) throws -> PawlProcess {
        var options = PawlProcess.Options(policy: policy, arguments: ["--metrics", metrics])
        (options.listenScheme, options.upstreamScheme) = ("http", "http")
        options.environment = ["PAWL_MAPPING": mapping].merging(environment) { $1 }
        return try PawlProcess(upstream: upstream, options)
    }

    /// Whether this is Base64, with or without the padding at its end.
    static func isBase64(_ value: JSONValue) -> Bool {
        guard let text = value.string, !text.isEmpty else { return false }
        let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Data(base64Encoded: text + padding) != nil
    }

    /// How many writes wait to be sent.
    static func waiting(_ gateway: PawlProcess) throws -> Int {
        let output = try gateway.admin(["queue", "list", "--state", "pending", "--json"])
        guard output.succeeded else { throw PeerError("no list: \(output.stderr)") }
        return try JSONValue(Array(output.stdout.utf8)).array.count
    }

    /// Whether anything that the gateway leaves behind or says shows this.
    static func shows(_ gateway: PawlProcess, _ text: String) -> [String] {
        let search = PlaintextSearch(text)
        let found = search.finds(in: Data(gateway.output.utf8)) ? ["its output"] : []
        return found + search.files(under: gateway.dataDirectory)
    }
}

/// A gateway between Synapse, behind a tap that loses what it is told to, and unmodified clients.
final class MatrixLab {
    let synapse: Synapse
    let tap: WireTap
    let gateway: PawlProcess
    /// Somebody whom only the server knows: reads rooms past the gateway.
    private(set) var tokens: [String: String] = [:]

    init(policy: String, environment: [String: String] = [:], hasService: Bool = false) throws {
        synapse = try Synapse(hasService: hasService)
        tap = try WireTap(backend: synapse.port)
        gateway = try JSONLab.gateway(
            JSONLab.mapping("matrix"), upstream: tap.port, policy: policy, environment: environment)
    }

    deinit {
        stop()
    }

    func stop() {
        gateway.stop()
        tap.stop()
        synapse.stop()
    }

    /// Somebody behind the gateway, or with `isOutside` past it. The first time makes the account.
    func person(_ user: String, isOutside: Bool = false) throws -> Nio {
        if tokens[user] == nil { tokens[user] = try synapse.register(user) }
        return try Nio(user, port: isOutside ? synapse.port : gateway.port)
    }

    /// A room of the first, and all of them in it. They follow it.
    func room(_ people: [Nio]) throws -> String {
        let names = people.dropFirst().map { String($0.user.dropFirst().prefix { $0 != ":" }) }
        let room = try people[0].create(inviting: names)
        for person in people.dropFirst() { try person.join(room) }
        for person in people { try person.follow() }
        return room
    }

    /// The messages of a room as the server has them, the oldest first.
    func stored(_ room: String) throws -> [JSONValue] {
        guard let token = tokens["alice"] else { throw PeerError("alice is not there") }
        return try synapse.events(of: room, as: token)
    }
}

/// A gateway between the generic chat and its clients.
final class GenericLab {
    static let conversation = "c1"
    let backend: ChatBackendProcess
    let gateway: PawlProcess
    let alice: ChatPerson
    let bob: ChatPerson

    /// With alice and bob in a conversation.
    init(
        policy: String, _ options: ChatBackendProcess.Options = .init(), mapping: String = JSONLab.mapping("generic"),
        environment: [String: String] = [:], metrics: String = ""
    ) throws {
        backend = try ChatBackendProcess(options)
        gateway = try JSONLab.gateway(
            mapping, upstream: backend.port, policy: policy, environment: environment, metrics: metrics)
        alice = try ChatPerson("alice", port: gateway.port)
        bob = try ChatPerson("bob", port: gateway.port)
        // Who has shown the gateway a credential is behind it.
        _ = try bob.ask("GET", "/me")
        try alice.open(Self.conversation, with: ["bob"])
    }

    /// A request of alice's over a connection of its own, whose answer is waited for later.
    func begin(_ method: String, _ target: String, _ body: JSONValue) throws -> PendingRequest {
        try alice.begin(method, target, body)
    }

    /// Until so many writes wait.
    func wait(for count: Int) throws {
        try eventually("\(count) wait") { try JSONLab.waiting(gateway) == count }
    }

    deinit {
        stop()
    }

    func stop() {
        gateway.stop()
        backend.stop()
    }
}
