// Calls to a Pawl gateway in front of the app's backend: the login, the proof of this device, and what refusals mean.

import DeviceDirectory
import Devices
import Envelope
import Foundation
import Messenger
import RequestQueue
import RequestQueueClient
import Synchronization

/// Makes calls of one device. Several may be under way at once.
final class GatewayCaller: Sendable {
    /// Why the gateway has not done a call.
    enum Failure: Error, Equatable {
        /// No answer, or one that asks to come again later.
        case unreachable
        /// The backend does not accept the login.
        case notLoggedIn
        /// The login stands for no device: none is proven since the gateway has started, or the device is not in the list.
        case notProven
        /// The device has to be in the account's list before it can be proven.
        case notAdopted
        case notFound
        /// The gateway has no such call. In the path of a call that every gateway has: it can have no account of that name.
        case unknownCall
        /// Devices of the recipients are not published.
        case unknownDevices
        case conflict
        /// There is no room for what the call stores: of the account, of a mailbox, or of all. There may be later.
        case full(String)
        case refused(String)
    }

    private struct State {
        var credential: GatewayCredential?
        var wasRefused = false
        /// The proof that is under way, for calls that need one.
        var proving: Task<Void, any Error>?
        /// The last proof that was begun.
        var proof: Task<Void, any Error>?
    }

    let request: TransportCreationRequest
    private let url: String
    private let network: any NetworkClient
    private let credential: @Sendable (_ isRefused: Bool) async throws -> GatewayCredential
    private let state = Mutex(State())

    /// Ours: how long a call may take, in milliseconds, besides the time that it waits at the gateway.
    private static let timeout: Int64 = 15_000

    init(
        _ url: URL, for request: TransportCreationRequest, network: any NetworkClient,
        credential: @escaping @Sendable (_ isRefused: Bool) async throws -> GatewayCredential
    ) {
        var text = url.absoluteString
        while text.hasSuffix("/") { text.removeLast() }
        self.url = text + "/_pawl/v1/"
        (self.request, self.network, self.credential) = (request, network, credential)
    }

    // MARK: One call

    /// Makes a call, and returns the body of its answer.
    ///
    /// - Parameter wait: how long the gateway may hold the answer back, in seconds.
    func call(
        _ method: RequestQueue.HTTPMethod, _ path: String, _ body: [UInt8] = [], wait: Int = 0
    ) async throws(Failure) -> [UInt8] {
        let credential = try await login()
        var request = NetworkRequest(
            method: method, url: url + path, timeoutInterval: Self.timeout + Int64(wait) * 1000)
        request.headers.append(.init(credential.header, credential.value))
        if !body.isEmpty { request.headers.append(.init("Content-Type", "application/json")) }
        request.body = body
        let response: NetworkResponse
        do { response = try await network.send(request) } catch { throw .unreachable }
        guard !response.isCut, response.body.count <= GatewayBody.answerLimit else { throw .unreachable }
        guard response.status != 200 else { return response.body }
        if response.status == 401 {
            state.withLock { state in
                if state.credential == credential { (state.credential, state.wasRefused) = (nil, true) }
            }
        }
        throw Self.failure(response.status, response.body)
    }

    /// Opens the WebSocket for the messages of this device.
    ///
    /// - Throws: ``Failure/unreachable`` for every reason: the calls for the messages tell which it is.
    func openSocket(_ sockets: any GatewaySocketClient) async throws(Failure) -> any GatewaySocket {
        let credential = try await login()
        guard let url = URL(string: url + "socket") else { throw .unreachable }
        let request = GatewaySocketRequest(
            url: url, credential: credential, messageLimit: GatewayBody.answerLimit, waitingLimit: Self.waitingPages,
            silence: Self.silence)
        do { return try await sockets.open(request) } catch { throw .unreachable }
    }

    /// Pages that may wait to be stored. The gateway sends two, and the first one may be empty.
    private static let waitingPages = 3
    /// Ours: how long a WebSocket may be silent. The gateway sends a ping every 25 seconds.
    private static let silence: Duration = .seconds(75)

    private static func failure(_ status: Int, _ body: [UInt8]) -> Failure {
        let (code, words) = GatewayBody.refusal(body)
        return switch (status, code) {
        case (401, _): .notLoggedIn
        case (_, "pawl_not_proven"): .notProven
        case (_, "pawl_not_found"): .notFound
        case (_, "pawl_unknown_call"): .unknownCall
        case (_, "pawl_unknown_devices"): .unknownDevices
        case (_, "pawl_full"): .full(words)
        case (_, "pawl_too_long"), (_, "pawl_malformed"), (_, "pawl_refused"): .refused(words)
        // Everything else may be another server's page, a limit, or a gateway that is being set up.
        default: .unreachable
        }
    }

    private func login() async throws(Failure) -> GatewayCredential {
        let (known, wasRefused) = state.withLock { ($0.credential, $0.wasRefused) }
        if let known { return known }
        let new: GatewayCredential
        do {
            new = try await credential(wasRefused)
        } catch CypherTransportError.refused {
            throw .notLoggedIn
        } catch {
            throw .unreachable
        }
        state.withLock { ($0.credential, $0.wasRefused) = (new, false) }
        return new
    }

    private static func read<Value>(_ body: () throws(GatewayBody.Malformed) -> Value) throws(Failure) -> Value {
        do { return try body() } catch { throw .unreachable }
    }

    // MARK: The device

    /// Checks the login.
    ///
    /// - Returns: whether it stands for this device, and how many one-time prekeys of it the gateway has.
    func identify() async throws(Failure) -> (isProven: Bool, oneTime: Int) {
        let answer = try await call(.get, "me")
        let me = try Self.read { () throws(GatewayBody.Malformed) in try GatewayBody.me(answer) }
        guard me.account == request.username else {
            state.withLock { ($0.credential, $0.wasRefused) = (nil, true) }
            throw .notLoggedIn
        }
        return (me.device == request.deviceId.raw, me.oneTime ?? 0)
    }

    /// What the account has published.
    func config(of user: Username) async throws(Failure) -> UserConfig {
        let answer = try await call(.get, "accounts/\(GatewayCredential.segment(user.raw))/config")
        return try Self.read { () throws(GatewayBody.Malformed) in try GatewayBody.config(in: answer) }
    }

    /// The list of an account; nil if it has none.
    func devices(of user: Username) async throws(Failure) -> (isPublished: [String: Bool], list: DeviceList)? {
        do throws(Failure) {
            let answer = try await call(.get, "accounts/\(GatewayCredential.segment(user.raw))/devices")
            return try Self.read { () throws(GatewayBody.Malformed) in try GatewayBody.devices(answer) }
        } catch .notFound {
            return nil
        }
    }

    /// Proves this device with keys of the account that contain it. One proof after the other: a challenge replaces the
    /// one before.
    func prove(with keys: PublishedKeys) async throws(Failure) {
        let task = state.withLock { state in
            let task = Task { [before = state.proof] in
                _ = await before?.result
                try await self.proveNow(with: keys)
            }
            state.proof = task
            return task
        }
        do { try await task.value } catch { throw error as? Failure ?? .unreachable }
    }

    private func proveNow(with keys: PublishedKeys) async throws(Failure) {
        let id = request.deviceId.id
        guard keys.deviceList.identity(of: id) != nil, let own = keys.devices.first(where: { $0.id == id }) else {
            throw .notAdopted
        }
        let answer = try await call(.post, "challenge")
        let challenge = try Self.read { () throws(GatewayBody.Malformed) in try GatewayBody.challenge(answer) }
        guard Username(challenge.account) == request.username else { throw .notLoggedIn }
        let proof = DirectoryMessage.proof(
            nonce: challenge.nonce, account: challenge.account, keys.deviceList,
            PublishedDevice(id: id, bundle: own.bundle, oneTime: [])
        ) { [request] in request.signature(of: $0, context: $1) }
        _ = try await call(.put, "device", GatewayBody.message(proof.bytes))
    }

    /// Proves this device with what the account has published.
    ///
    /// - Returns: the published keys.
    /// - Throws: ``Failure/notAdopted`` if they do not contain this device, ``Failure/notFound`` if there are none.
    func proveAgain() async throws(Failure) -> UserConfig {
        let config = try await config(of: request.username)
        guard let keys = try? PublishedKeys(config.bytes) else { throw .notAdopted }
        try await prove(with: keys)
        return config
    }

    /// Makes a call of a proven device. If the gateway has forgotten the proof, the device is proven again.
    func provenCall(
        _ method: RequestQueue.HTTPMethod, _ path: String, _ body: [UInt8] = [], wait: Int = 0
    ) async throws(Failure) -> [UInt8] {
        do throws(Failure) {
            return try await call(method, path, body, wait: wait)
        } catch .notProven {
            try await proveOnce()
            return try await call(method, path, body, wait: wait)
        }
    }

    /// Proves the device, once for all calls that need it now.
    private func proveOnce() async throws(Failure) {
        let task = state.withLock { state in
            if let task = state.proving { return task }
            let task = Task { [weak self] in
                defer { self?.state.withLock { $0.proving = nil } }
                _ = try await self?.proveAgain()
            }
            state.proving = task
            return task
        }
        do { try await task.value } catch { throw error as? Failure ?? .unreachable }
    }

}

extension GatewayCredential {
    /// Whether a name can be a segment of a gateway's path, once it is encoded: false for control characters, white space,
    /// slashes, backslashes, semicolons and dot segments. A server before the gateway may refuse such a path by itself.
    static func isSegment(_ name: String) -> Bool {
        !name.isEmpty && name != "." && name != ".."
            && name.utf8.allSatisfy { byte in
                switch byte {
                case 0...0x20, 0x7F, UInt8(ascii: "/"), UInt8(ascii: "\\"), UInt8(ascii: ";"): false
                default: true
                }
            }
    }

    /// A name as one segment of a path, or as a value in a query. RFC 3986 section 2.3.
    package static func segment(_ name: String) -> String {
        var output = ""
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "~"):
                output.append(Character(Unicode.Scalar(byte)))
            default: output += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }
        return output
    }
}
