// The backend, as the queue sends requests to it.

import AsyncHTTPClient
import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import RequestQueueClient

/// The backend, as an API client of the queue.
struct BackendClient: APIClient {
    let identifier = "backend"
    let host: String
    let networkClient: any NetworkClient
    private let credentials: KnownCredentials
    /// The form of the backend's refusals in the current mapping.
    private let refusal: @Sendable () -> RefusalForm
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

    init(
        host: String, http: HTTPClient, credentials: KnownCredentials, refusal: @escaping @Sendable () -> RefusalForm
    ) {
        (self.host, self.credentials, self.refusal) = (host, credentials, refusal)
        networkClient = BackendNetwork(http: HTTPNetworkClient(http), credentials: credentials)
    }

    /// Whether a request with a refused credential waits for the next login of its account.
    ///
    /// A request that is refused at its first attempt, with its own credential, would have been refused without a
    /// gateway as well. A request that has waited may have outlived its credential.
    func waitsForLogin(_ request: APIClientQueueRequest) -> Bool {
        request.attempts > 1 || !credentials.isRefused(request.mark)
    }

    /// Leaves out `Set-Cookie`: a cookie may be a credential.
    func keepsHeader(_ name: String) -> Bool { name.lowercased() != "set-cookie" }

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
        guard !request.creates.isEmpty, let text = request.identifiers,
            let path = try? JSONPath(String(decoding: text, as: UTF8.self)),
            let document = try? JSONDocument(ByteBuffer(bytes: Array(response.data))),
            let place = try? document.one(path), let remote = try? document.identifier(place, path.text)
        else { return [] }
        return request.creates.map { .both(type: $0.type, local: $0.local, remote: remote) }
    }
}

/// Sends requests with a credential of their account.
///
/// A request is sent with the credential that came with it, while that is known and accepted: a backend may recognise a
/// repeated request by its device. Otherwise it is sent with the account's most recent credential.
struct BackendNetwork: NetworkClient {
    /// Internal fields, which never leave this process.
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

    /// Sends a request, with a credential for the query moved from its internal field into the URL.
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
    /// Returns the request with another credential.
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
    /// Converts a credential. One for the query becomes ``BackendNetwork/queryField``, which the network client removes.
    init(_ credential: Credential) {
        var headers = credential.fields.fields.map { ResolvedRequest.Header($0.name, $0.value) }
        if let query = credential.neededQuery { headers.append(.init(BackendNetwork.queryField, query)) }
        self.init(headers: headers)
    }

    /// Converts a credential, with all cookies of its request.
    init(_ credential: Credential, cookies: [String]) {
        self.init(credential)
        guard !cookies.isEmpty else { return }
        self.init(
            headers: headers.filter { $0.name.lowercased() != "cookie" } + cookies.map { .init("Cookie", $0) })
    }
}

/// Receives the outcomes of writes, and notifies clients that were answered at once.
final class WriteEnds: APIClientQueueResponseHandler {
    private let notify: @Sendable (AccountID, MessageNews) -> Void
    private let waiting: WaitingWrites

    init(_ waiting: WaitingWrites, notify: @escaping @Sendable (AccountID, MessageNews) -> Void) {
        (self.waiting, self.notify) = (waiting, notify)
    }

    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        waiting.end(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
        let account = AccountID(text: request.tenant)
        let localIDs = request.creates.map(\.local).filter(LocalMessageID.isOne)
        switch result {
        case .success(let response):
            guard let queue = clientQueue as? APIClientQueue else { return }
            for case .both(_, let local, let remote) in queue.client.identifiers(in: response, for: request)
            where LocalMessageID.isOne(local) {
                notify(account, .merged(MessageMerge(localID: local, remoteID: remote)))
            }
        case .aborted: for local in localIDs { notify(account, .lost(localID: local, reason: nil)) }
        case .failure(let error): for local in localIDs { notify(account, .lost(localID: local, reason: "\(error)")) }
        }
    }
}
