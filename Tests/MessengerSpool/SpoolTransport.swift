import Foundation
package import PawlMessenger
import Synchronization

/// A server that is a directory: each message is a file in the directory of its device, until that has taken it.
///
/// A file appears whole or not at all, and the name of a message that is sent again is the same. So processes can be
/// killed at any time.
package final class SpoolTransport: CypherServerTransportClient {
    private struct State {
        weak var delegate: (any CypherTransportClientDelegate)?
        /// Requests of devices that this process has seen.
        var seen: Set<String> = []
    }

    private let spool: URL
    private let username: Username
    private let deviceId: DeviceId
    private let state = Mutex(State())

    package init(_ spool: String, _ request: TransportCreationRequest) {
        self.spool = URL(fileURLWithPath: spool)
        (username, deviceId) = (request.username, request.deviceId)
    }

    package var delegate: (any CypherTransportClientDelegate)? {
        get { state.withLock { $0.delegate } }
        set { state.withLock { $0.delegate = newValue } }
    }

    /// Offline while there is a file of this name.
    package var authenticated: AuthenticationState {
        FileManager.default.fileExists(atPath: spool.appending(path: "offline").path)
            ? .unauthenticated : .authenticated
    }

    private func write(_ text: String, to path: String) throws {
        guard authenticated == .authenticated else { throw CypherTransportError.offline }
        let file = spool.appending(path: path)
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(text.utf8).write(to: file, options: .atomic)
    }

    private func keys(_ username: Username) -> URL { spool.appending(path: "keys/\(username)") }

    package func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        try write(
            "\(self.username) \(deviceId) \(messageId) \(message.base64)",
            to: "mail/\(username)/\(otherUserDeviceId)/\(messageId)-\(deviceId)")
    }

    package func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        guard let text = try? String(contentsOf: keys(username), encoding: .utf8) else {
            throw CypherTransportError.notFound
        }
        guard let config = UserConfig(base64: text) else { throw CypherTransportError.offline }
        return config
    }

    package func publishKeyBundle(_ data: UserConfig) async throws { try write(data.base64, to: "keys/\(username)") }

    package func requestDeviceRegistery(_ config: UserDeviceConfig) async throws {
        try write(config.base64, to: "requests/\(username)/\(deviceId)")
    }

    /// Delivers the requests of other devices of the account, once in each process: they stay.
    private func deliverRequests() async {
        let folder = spool.appending(path: "requests/\(username)")
        for name in (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [] {
            guard name != "\(deviceId)", !state.withLock({ $0.seen.contains(name) }), let delegate,
                let text = try? String(contentsOf: folder.appending(path: name), encoding: .utf8),
                let config = UserDeviceConfig(base64: text)
            else { continue }
            do {
                try await delegate.receiveServerEvent(.requestDeviceRegistery(config))
                _ = state.withLock { $0.seen.insert(name) }
            } catch {
                // It is tried again with the next messages.
            }
        }
    }

    /// Bytes of the name of a message: two devices may give their messages the same id, so both ids are in it.
    private static let nameLength = 33

    /// Delivers all messages that wait, and returns how many.
    package func deliver() async -> Int {
        await deliverRequests()
        let mailbox = spool.appending(path: "mail/\(username)/\(deviceId)")
        let names = (try? FileManager.default.contentsOfDirectory(atPath: mailbox.path)) ?? []
        var count = 0
        for name in names.sorted() where name.utf8.count == Self.nameLength {
            let file = mailbox.appending(path: name)
            let words = ((try? String(contentsOf: file, encoding: .utf8)) ?? "").split(separator: " ").map(String.init)
            guard words.count == 4, let sender = DeviceId(words[1]),
                let message = RatchetedCypherMessage(base64: words[3]), let delegate
            else { continue }
            do {
                try await delegate.receiveServerEvent(
                    .messageSent(message, id: words[2], byUser: Username(words[0]), deviceId: sender))
                try? FileManager.default.removeItem(at: file)
                count += 1
            } catch {
                return count
            }
        }
        return count
    }
}
