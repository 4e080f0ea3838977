// The backend, as the queue's attempts speak to it.

import AsyncHTTPClient
import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import RequestQueueClient

/// The backend, as the queue knows it.
struct BackendClient: APIClient {
    let identifier = "backend"
    let host: String
    let networkClient: any NetworkClient
    private let credentials: KnownCredentials
    /// The form of the backend's refusals, as the mapping has it now.
    private let refusal: @Sendable () -> RefusalForm
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

    init(
        host: String, http: HTTPClient, credentials: KnownCredentials, refusal: @escaping @Sendable () -> RefusalForm
    ) {
        (self.host, self.credentials, self.refusal) = (host, credentials, refusal)
        networkClient = BackendNetwork(http: HTTPNetworkClient(http), credentials: credentials)
    }

    /// What the backend refuses at once under the credential that it came with, it would have refused without a gateway as well. What
    /// has waited may have outlived its credential.
    func waitsForLogin(_ request: APIClientQueueRequest) -> Bool {
        request.attempts > 1 || !credentials.isRefused(request.mark)
    }

    /// A cookie that a client gets may let it in.
    func keepsHeader(_ name: String) -> Bool { name.lowercased() != "set-cookie" }

    /// Only what the backend itself has refused is final: a JSON object that has a member of the mapping's `refusal.body`. Where the
    /// mapping has none of its own, any JSON object.
    func errorPayload(from body: Data) -> APIErrorPayload? {
        let form = refusal().body
        guard let found = Self.members(Array(body)) else { return nil }
        if form != RefusalForm().body, let expected = Self.members(Array(form.utf8)), expected.isDisjoint(with: found) {
            return nil
        }
        return APIErrorPayload(message: "")
    }

    /// The names of a JSON object's members; nil if the bytes are no JSON object.
    private static func members(_ bytes: [UInt8]) -> Set<String>? {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)), document.kind(document.root) == .object
        else { return nil }
        return Set(document.children(document.root).compactMap { try? document.name($0) })
    }

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

/// The network. A request is sent with the credential that its client showed with it, while that is known and accepted: a
/// backend may know a repetition by its device. Else with the one that its account showed last.
struct BackendNetwork: NetworkClient {
    /// No fields of HTTP: they never leave this process.
    static let queryField = "pawl-credential-in-query"
    static let markField = "pawl-credential"

    let http: HTTPNetworkClient
    let credentials: KnownCredentials

    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        var request = request
        let mark = request.header(Self.markField)
        request.headers.removeAll { $0.name == Self.markField }
        guard let mark, let own = credentials.key(mark) else { return try await carry(request) }
        let answer = try await carry(request.showing(own))
        if answer.status == 401 { credentials.refuse(mark) }
        return answer
    }

    /// Credentials of the query go where they belong.
    private func carry(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        var request = request
        if let query = request.header(Self.queryField) {
            request.headers.removeAll { $0.name == Self.queryField }
            request.url += (request.url.contains("?") ? "&" : "?") + query
        }
        return try await http.send(request)
    }
}

extension NetworkRequest {
    /// The same with another credential.
    fileprivate func showing(_ key: SessionKey) -> NetworkRequest {
        let places = Set(key.headers.map { $0.name.lowercased() }).union([
            "authorization", "cookie", BackendNetwork.queryField,
        ])
        var request = self
        request.headers.removeAll { places.contains($0.name.lowercased()) }
        request.headers += key.headers
        return request
    }
}

extension SessionKey {
    /// A credential that stands in the query travels as a field that the network client takes off again.
    init(_ credential: Credential) {
        var headers = credential.fields.fields.map { ResolvedRequest.Header($0.name, $0.value) }
        if let query = credential.neededQuery { headers.append(.init(BackendNetwork.queryField, query)) }
        self.init(headers: headers)
    }

    /// The same with all cookies that came with it.
    init(_ credential: Credential, cookies: [String]) {
        self.init(credential)
        guard !cookies.isEmpty else { return }
        self.init(
            headers: headers.filter { $0.name.lowercased() != "cookie" } + cookies.map { .init("Cookie", $0) })
    }
}

/// Hears how writes end, and tells clients that have been answered at once.
final class WriteEnds: APIClientQueueResponseHandler {
    private let tell: @Sendable (AccountID, MessageNews) -> Void
    private let waiting: WaitingWrites

    init(_ waiting: WaitingWrites, tell: @escaping @Sendable (AccountID, MessageNews) -> Void) {
        (self.waiting, self.tell) = (waiting, tell)
    }

    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        waiting.end(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
        let account = AccountID(text: request.tenant)
        let told = request.creates.map(\.local).filter(LocalMessageID.isOne)
        switch result {
        case .success(let response):
            guard let queue = clientQueue as? APIClientQueue else { return }
            for case .both(_, let local, let remote) in queue.client.identifiers(in: response, for: request)
            where LocalMessageID.isOne(local) {
                tell(account, .merged(MessageMerge(localID: local, remoteID: remote)))
            }
        case .aborted: for local in told { tell(account, .lost(localID: local, reason: nil)) }
        case .failure(let error): for local in told { tell(account, .lost(localID: local, reason: "\(error)")) }
        }
    }
}
