import Foundation
import PeerKit
import TestKit

/// The data directory of a gateway in front of the generic chat, as the last version left it that kept its queue in
/// `queue.sqlite`, and that chat with the same people.
///
/// `Golden/queue2.tar.gz` was made by that version, in front of a backend that gives ids and tokens as
/// Tests/ChatBackend does. Its clock was set to 2099, so that nothing in it grows old, and it was killed. Alice's
/// writes, with their ids in the queue:
///
/// | id | | |
/// |---|---|---|
/// | 1 | `own-1` to c1, `canary done` | done; the backend calls it m3 |
/// | 2 | an edit of `own-1`, `canary edited` | held; it names the message by alice's own id |
/// | 3 | `own-2` to c2, `canary dead` | dead: refused with 400 |
/// | 4 | `own-3` to c2, `canary in flight` | in flight |
/// | 5 | `own-4` to c1, `canary waits` | waits, because all of alice is held |
///
/// Credentials are sealed in the queue. Beside the directory is a backup of the same moment.
///
/// `Golden/queue7.tar.gz` is the same directory after the first start of a later version, which had moved the queue into a
/// store of schema 7 and removed the file.
final class EarlierQueueLab {
    let backend: ChatBackendProcess
    private let scratch: ScratchDirectory
    private let port: FreePort
    /// Alice and bob as the gateway knows them, past it.
    private let people: [ChatPerson]

    /// The data directory.
    var data: String { scratch.file("gateway") }
    var queue: String { data + "/queue.sqlite" }
    var backup: String { scratch.file("backup") }

    /// - Parameter version: of the archive in `Golden`.
    init(_ version: Int = 2) throws {
        scratch = try ScratchDirectory()
        port = try FreePort()
        let archive = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Golden/queue\(version).tar.gz").path
        let tar = try ChildProcess.run("/bin/tar", ["xzf", archive, "-C", scratch.path, "--no-same-owner"])
        guard tar.succeeded else { throw PeerError(tar.stderr) }
        backend = try ChatBackendProcess()
        people = try ["alice", "bob"].map { [backend] in try ChatPerson($0, port: backend.port) }
        for conversation in ["c1", "c2"] { try people[0].open(conversation, with: ["bob"]) }
        // In the place of the message that is done.
        let message = try people[0].post("past the gateway", in: "c1")
        guard people.map(\.token) == ["token-alice-1", "token-bob-2"], message == "m3" else {
            throw PeerError("the backend gives other names than that of the archive: \(people.map(\.token)) \(message)")
        }
    }

    deinit { backend.stop() }

    private static let environment = [
        "PAWL_MAPPING": JSONLab.mapping("generic"), "PAWL_UPSTREAM_NETWORK": "example",
        "PAWL_QUEUE_CREDENTIALS": "sealed",
    ]

    /// Starts the gateway on a data directory.
    func start(_ data: String? = nil) throws -> PawlProcess {
        var options = PawlProcess.Options(policy: "hosted", arguments: ["--metrics", ""])
        (options.listenScheme, options.upstreamScheme) = ("http", "http")
        options.dataDirectory = data ?? self.data
        options.environment = Self.environment
        return try PawlProcess(upstream: backend.port, options)
    }

    /// A start that is to be refused.
    ///
    /// - Parameter mapping: in place of the right one.
    func tryToStart(mapping: String? = nil) throws -> ChildProcess.Output {
        try PawlProcess.run(
            [
                "serve", "--listen", "http://127.0.0.1:\(port.number)", "--upstream",
                "http://127.0.0.1:\(backend.port)", "--policy", "hosted", "--metrics", "", "--data", data,
            ], environment: Self.environment.merging(mapping.map { ["PAWL_MAPPING": $0] } ?? [:]) { $1 })
    }

    /// A command on the data directory, while no gateway runs.
    func admin(_ words: [String]) throws -> ChildProcess.Output { try PawlProcess.run(words + ["--data", data]) }

    /// Alice, with the credential of her writes.
    func alice(_ gateway: PawlProcess) -> ChatPerson { ChatPerson(people[0], port: gateway.port) }
    func bob(_ gateway: PawlProcess) -> ChatPerson { ChatPerson(people[1], port: gateway.port) }

    /// Ends the holds of request 2 and of alice.
    func release(_ gateway: PawlProcess) throws {
        for scope in [["2"], ["--account", "alice"]] {
            let output = try gateway.admin(["queue", "release"] + scope)
            guard output.succeeded else { throw PeerError("\(scope): \(output.stderr)") }
        }
    }

    /// The ids of the requests in a state.
    func ids(_ gateway: PawlProcess, _ state: String) throws -> [String] {
        let output = try gateway.admin(["queue", "list", "--state", state, "--json"])
        guard output.succeeded else { throw PeerError("\(state): \(output.stderr)") }
        return try JSONValue(Array(output.stdout.utf8)).array.compactMap { $0["id"].string }
    }

    /// The writes of messages that the backend has had, with the one past the gateway.
    func writes() throws -> [String] {
        try backend.received().compactMap { item in
            guard let method = item["method"].string, let target = item["target"].string, method != "GET" else {
                return nil
            }
            return target.contains("/messages") ? "\(method) \(target)" : nil
        }
    }

    /// What is left of the queue's file: `queue.sqlite` and those beside it.
    func left() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: data).filter { $0.hasPrefix("queue.sqlite") }.sorted()
    }
}
