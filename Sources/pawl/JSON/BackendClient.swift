// The backend, as the queue sends requests to it.

import Foundation
import HTTPCodec
import HTTPServer
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient

/// The backend, as an API client of the queue.
struct BackendClient: APIClient {
    let identifier = "backend"
    let host: String
    let networkClient: any NetworkClient
    /// The form of the backend's refusals in the current mapping.
    private let refusal: @Sendable () -> RefusalForm
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

    init(
        host: String, sender: UpstreamSender, carriers: SocketWrites, refusal: @escaping @Sendable () -> RefusalForm
    ) {
        (self.host, self.refusal) = (host, refusal)
        networkClient = BackendNetwork(host: host, sender: sender, carriers: carriers)
    }

    /// Leaves out `Set-Cookie`: a cookie may be a credential.
    func keepsHeader(_ name: String) -> Bool { !WriteWaiters.isCookie(name) }

    /// Recognises a refusal of the backend itself, which is final, unlike that of a proxy.
    ///
    /// It is a JSON object with a member of the mapping's `refusal.body`, or any JSON object if the mapping has none.
    func errorPayload(from body: Data) -> APIErrorPayload? {
        let form = refusal().body
        guard let found = Self.members(Array(body)) else { return nil }
        if form != RefusalForm().body, let expected = Self.members(Array(form.utf8)), expected.isDisjoint(with: found) {
            return nil
        }
        return APIErrorPayload(message: "")
    }

    /// Returns the names of a JSON object's members; nil if the bytes are no JSON object.
    private static func members(_ bytes: [UInt8]) -> Set<String>? {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)), document.kind(document.root) == .object
        else { return nil }
        return Set(document.children(document.root).compactMap { try? document.name($0) })
    }

    /// Returns the backend's id of the message, from the place that the mapping names.
    func identifiers(
        in response: APIClientResponse<Data>, for request: APIClientQueueRequest
    ) -> [EntityIdentifier] {
        guard !request.creates.isEmpty, let source = request.identifiers.flatMap(RemoteIDSource.init),
            let document = try? JSONDocument(ByteBuffer(bytes: response.data)), let remote = source.id(in: document)
        else { return [] }
        return request.creates.map { .both(type: $0.type, local: $0.local, remote: remote) }
    }
}

/// Sends requests over the connections of the server.
struct BackendNetwork: NetworkClient {
    /// Ours: bytes of an answer that are kept.
    private static let answerLimit = 16 << 20

    /// The beginning of all URLs.
    let host: String
    let sender: UpstreamSender
    /// The WebSocket connections of accounts.
    let carriers: SocketWrites

    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        if request.url.hasPrefix(SocketWrites.hostPrefix) { return try await sendOverWebSocket(request) }
        guard request.url.hasPrefix(host) else { throw .badURL }
        var fields: [HeaderFields.Field] = []
        fields.reserveCapacity(request.headers.count + 2)
        for header in request.headers where header.name != QueuedRequest.markField {
            fields.append(HeaderFields.Field(header.name, header.value))
        }
        let target = String(Substring(request.url.utf8.dropFirst(host.utf8.count)))
        let head = RequestHead(request.method.name, target, headers: HeaderFields(fields))
        do {
            let answer = try await sender.send(
                head, ByteBuffer(bytes: request.body), timeout: .milliseconds(request.timeoutInterval),
                limit: Self.answerLimit)
            return NetworkResponse(
                status: answer.head.status, headers: answer.head.headers.fields.map { .init($0.name, $0.value) },
                body: Array(answer.body.readableBytesView), isCut: answer.isCut)
        } catch {
            throw Self.failure(error)
        }
    }

    /// The status that stands for an answer of a backend over a WebSocket. RFC 9110 sections 15.3.1 and 15.5.1, RFC 6585
    /// section 4.
    private static func status(of verdict: Acknowledgement.Verdict) -> Int {
        switch verdict {
        case .accepted: 200
        case .rejected: 400
        case .postponed: 429
        }
    }

    /// Sends a message over a WebSocket of its account.
    private func sendOverWebSocket(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        guard let field = request.header(SocketWrites.field), let parts = SocketWrites.parse(field) else {
            throw .badURL
        }
        let promise = sender.eventLoop.makePromise(of: SocketWrite.End.self)
        let write = SocketWrite(token: parts.token, bytes: ByteBuffer(bytes: request.body)) { promise.succeed($0) }
        let timeout = sender.eventLoop.scheduleTask(in: .milliseconds(request.timeoutInterval)) {
            _ = write.end(.timedOut)
        }
        defer { timeout.cancel() }
        carriers.send(write, of: parts.account, preferring: parts.connection)
        let end = await withTaskCancellationHandler {
            (try? await promise.futureResult.get()) ?? .lost
        } onCancel: {
            write.end(.cancelled)
        }
        switch end {
        case .answered(let verdict, let bytes):
            return NetworkResponse(status: Self.status(of: verdict), body: Array(bytes.readableBytesView))
        case .unsent: throw .noOpenConnection
        case .busy: throw .noFreeConnection
        case .lost: throw .networkConnectionLost
        case .timedOut: throw .timedOut
        case .cancelled: throw .cancelled
        }
    }

    /// What the queue has to know of a failure: above all, whether the backend may have received the request.
    static func failure(_ error: any Error) -> NetworkFailure {
        switch error {
        case UpstreamSender.Failure.unsent(UpstreamError.noFreeConnection): return .noFreeConnection
        case UpstreamSender.Failure.unsent(let cause):
            let known = HTTPNetworkClient.failure(cause)
            return known.kind == .unreachable ? known : .cannotConnectToHost
        case UpstreamSender.Failure.unanswered(UpstreamError.timeout): return .timedOut
        case UpstreamSender.Failure.unanswered(UpstreamError.notHTTP),
            UpstreamSender.Failure.unanswered(UpstreamError.unaskedUpgrade):
            return .badServerResponse
        case UpstreamSender.Failure.unanswered(UpstreamError.closed): return .networkConnectionLost
        case UpstreamSender.Failure.unanswered(let cause):
            let known = HTTPNetworkClient.failure(cause)
            return known.kind == .unreachable ? .networkConnectionLost : known
        default: return HTTPNetworkClient.failure(error)
        }
    }
}

extension SessionKey {
    /// Converts a credential.
    init(_ credential: Credential) {
        let headers = credential.fields.fields.map { ResolvedRequest.Header($0.name, $0.value) }
        self.init(headers: headers, query: credential.neededQuery)
    }

    /// A stored key in the present form. Until stored form 3, one for the query was a header field.
    init(stored key: SessionKey) {
        self = key
        guard let place = headers.firstIndex(where: { $0.name == "pawl-credential-in-query" }) else { return }
        query = headers.remove(at: place).value
    }

    /// Converts a credential, with all cookies of its request.
    init(_ credential: Credential, cookies: [String]) {
        self.init(credential)
        guard !cookies.isEmpty else { return }
        headers = headers.filter { $0.name.lowercased() != "cookie" } + cookies.map { .init("Cookie", $0) }
    }
}
