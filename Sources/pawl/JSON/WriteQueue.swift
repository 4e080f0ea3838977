// Writes to a JSON backend, in the persistent queue.

import AsyncHTTPClient
import DoubleRatchet
import Foundation
import GatewayCore
import JSONCodec
import NIOCore
import PawlConfiguration
import RequestQueue
import RequestQueueClient
import SQLiteQueue

/// The queue as exchanges use it.
final class WriteQueue: Sendable {
    let queue: APIClientQueue
    private let http: HTTPClient

    /// - Throws: `QueueStoreError` where the store cannot be read.
    ///
    /// - Parameter merged: hears what the backend calls messages that clients know by a local id.
    init(
        path: String, host: String, settings: QueueMachine.Settings, credentials: SessionCredentials, http: HTTPClient,
        merged: @escaping @Sendable (AccountID, MessageMerge) -> Void
    ) throws {
        self.http = http
        var settings = settings
        settings.keepsOutcomes = true
        queue = try APIClientQueue(
            client: BackendClient(host: host, http: http), store: try SQLiteQueueStore(path: path), settings: settings,
            credentials: credentials, handlers: [MergeTeller(merged)])
    }

    /// What waits for a login can go.
    func loggedIn(_ account: AccountID, _ credential: Credential) {
        queue.setSession(SessionKey(credential), for: account.text)
    }

    /// What was said before under a key.
    func recall(
        _ account: AccountID, key: String, _ done: @escaping @Sendable (WriteToken?, _ creates: String?) -> Void
    ) {
        Task {
            let known = try? await queue.request(idempotencyKey: key, tenant: account.text)
            done(known.map { WriteToken($0.token) }, known?.creates.map(\.local).first(where: LocalMessageID.isOne))
        }
    }

    /// Takes a write; it is committed when this is answered.
    func enqueue(_ write: QueuedWrite, _ done: @escaping @Sendable (Result<WriteToken, WriteRefusal>) -> Void) {
        Task {
            queue.setSession(SessionKey(write.credential), for: write.account.text)
            do throws(QueueError) {
                done(.success(WriteToken(try await queue.append(write.request))))
            } catch {
                switch error {
                case .keyReused:
                    // Two requests with the same key have been sealed side by side; the first one counts.
                    recall(write.account, key: write.idempotencyKey ?? "") { token, _ in
                        done(token.map { .success($0) } ?? .failure(.unavailable))
                    }
                case .tenantFull, .full: done(.failure(.full))
                case .unknownDependency, .failedDependency: done(.failure(.unknownReference))
                case .tooLarge, .malformed, .unavailable, .closed: done(.failure(.unavailable))
                }
            }
        }
    }

    /// Tells how a write ends, if it does while its client waits.
    func await(_ token: WriteToken, _ done: @escaping @Sendable (WriteOutcome) -> Void) {
        let waiting = Task {
            guard let outcome = try? await queue.outcome(of: RequestToken(high: token.high, low: token.low)) else {
                return
            }
            done(WriteOutcome(outcome))
        }
        Task {
            try? await Task.sleep(for: .nanoseconds(HTTPExchange.patience))
            waiting.cancel()
        }
    }

    func close() async {
        await queue.close()
        try? await http.shutdown()
    }
}

extension WriteToken {
    fileprivate init(_ token: RequestToken) { self.init(high: token.high, low: token.low) }
}

extension SessionKey {
    /// A credential that stands in the query travels as a field that the network client takes off again.
    fileprivate init(_ credential: Credential) {
        var headers = credential.fields.fields.map { ResolvedRequest.Header($0.name, $0.value) }
        if let query = credential.neededQuery { headers.append(.init(BackendNetwork.queryField, query)) }
        self.init(headers: headers)
    }
}

extension QueuedWrite {
    /// Messages are the only entities.
    fileprivate static func message(_ local: String) -> EntityReference {
        EntityReference(type: "message", local: local)
    }

    fileprivate var request: NewRequest {
        var config = APIRequestConfig(
            method: HTTPMethod.allCases.first { $0.name == head.method } ?? .post, path: APIRequestPath(segments))
        config.headers = Parameters(head.headers.fields.map { .init(name: $0.name, value: .text($0.value)) })
        config.body = queuedBody
        config.deduplicate = false
        return NewRequest(
            config, tenant: account.text, lane: lane, creates: creates.map(Self.message),
            identifiers: remoteID.map { Array($0.text.utf8) }, idempotencyKey: idempotencyKey)
    }

    /// The target, cut where a message is named that the backend may not have named yet.
    private var segments: [APIRequestPath.Segment] {
        var locals: [Int: String] = [:]
        for reference in references {
            if case .segment(let index) = reference.place { locals[index] = reference.local }
        }
        guard !locals.isEmpty else { return [.raw(head.target)] }
        var segments: [APIRequestPath.Segment] = []
        for (index, segment) in head.path.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
            .enumerated()
        {
            segments.append(.raw("/"))
            segments.append(locals[index].map { .reference(Self.message($0)) } ?? .raw(String(segment)))
        }
        if let query = head.query { segments.append(.raw("?" + query)) }
        return segments
    }

    /// The bytes as they are, where none stands in them.
    private var queuedBody: RequestBody? {
        guard body.readableBytes > 0 else { return nil }
        var locals: [JSONPlace: String] = [:]
        if let document = try? JSONDocument(body) {
            for case (.body(let path), let local) in references.map({ ($0.place, $0.local) }) {
                if let place = try? document.one(path) { locals[place] = local }
            }
            if !locals.isEmpty, let value = JSONValue(document, document.root, locals) { return .json(value) }
        }
        return .rawData(Array(body.readableBytesView))
    }
}

extension JSONValue {
    /// A value of a document, with references at some places; nothing where a string in it is no text.
    fileprivate init?(_ document: JSONDocument, _ place: JSONPlace, _ locals: [JSONPlace: String]) {
        if let local = locals[place] {
            self = .reference(EntityReference(type: "message", local: local))
            return
        }
        switch document.kind(place) {
        case .null: self = .null
        case .boolean: self = .bool(document.boolean(place) ?? false)
        case .number: self = .number(document.numberText(place) ?? "0")
        case .string:
            guard let text = try? document.text(place) else { return nil }
            self = .string(text)
        case .array:
            var elements: [JSONValue] = []
            for child in document.children(place) {
                guard let value = JSONValue(document, child, locals) else { return nil }
                elements.append(value)
            }
            self = .array(elements)
        case .object:
            var members: [JSONValue.Member] = []
            for child in document.children(place) {
                guard let name = try? document.name(child), let value = JSONValue(document, child, locals) else {
                    return nil
                }
                members.append(Member(name, value))
            }
            self = .object(members)
        }
    }
}

extension WriteOutcome {
    fileprivate init(_ outcome: RequestOutcome) {
        let headers = HeaderFields(outcome.headers.map { HeaderFields.Field($0.name, $0.value) })
        switch outcome.result {
        case .success(let status), .failure(let status?):
            self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: outcome.body))
        case .failure(nil): self = .failed(outcome.cause ?? "the chat server did not take it")
        case .aborted: self = .dropped
        }
    }
}

/// The backend, as the queue knows it.
private struct BackendClient: APIClient {
    let identifier = "backend"
    let host: String
    let networkClient: any NetworkClient
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

    init(host: String, http: HTTPClient) {
        self.host = host
        networkClient = BackendNetwork(http: HTTPNetworkClient(http))
    }

    func errorPayload(from body: Data) -> APIErrorPayload? { nil }

    /// The backend's id of the message, where the mapping says that it stands.
    func identifiers(
        in response: APIClientResponse<Data>, for request: APIClientQueueRequest
    ) -> [EntityIdentifier] {
        guard !request.creates.isEmpty, let text = request.identifiers,
            let path = try? JSONPath(String(decoding: text, as: UTF8.self)),
            let document = try? JSONDocument(ByteBuffer(bytes: Array(response.data))),
            let place = try? document.one(path), let remote = try? document.identifier(place, path.text)
        else { return [] }
        return request.creates.map { .both(type: $0.type, local: $0.local, remote: remote) }
    }
}

/// Tells clients that have been answered at once what their messages are called now.
private final class MergeTeller: APIClientQueueResponseHandler {
    private let merged: @Sendable (AccountID, MessageMerge) -> Void

    init(_ merged: @escaping @Sendable (AccountID, MessageMerge) -> Void) { self.merged = merged }

    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        guard case .success(let response) = result, let queue = clientQueue as? APIClientQueue else { return }
        for case .both(_, let local, let remote) in queue.client.identifiers(in: response, for: request)
        where LocalMessageID.isOne(local) {
            merged(AccountID(text: request.tenant), MessageMerge(localID: local, remoteID: remote))
        }
    }
}

/// The network, with credentials of the query where they belong.
private struct BackendNetwork: NetworkClient {
    /// No field of HTTP: it never leaves this process.
    static let queryField = "pawl-credential-in-query"

    let http: HTTPNetworkClient

    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        var request = request
        if let query = request.header(Self.queryField) {
            request.headers.removeAll { $0.name == Self.queryField }
            request.url += (request.url.contains("?") ? "&" : "?") + query
        }
        return try await http.send(request)
    }
}

extension WriteQueue {
    /// Requests for `pawl queue list`.
    func rows(states: [RequestState], limit: Int) throws -> [QueueCommand.List.Row] {
        let states = states.contains(.pending) ? states + [.inFlight] : states
        return try queue.requests(states: states, limit: limit).map { request in
            QueueCommand.List.Row(
                id: "\(request.id)", state: request.state.name, held: request.isHeld, account: request.tenant,
                target: request.lane ?? "", lines: 1, accepted: Table.time(request.timestamp), remoteID: nil,
                reason: request.cause)
        }
    }
}
