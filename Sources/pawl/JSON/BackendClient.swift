// The backend, as the queue's attempts speak to it.

import AsyncHTTPClient
import Foundation
import GatewayCore
import JSONCodec
import NIOCore
import RequestQueue
import RequestQueueClient

/// The backend, as the queue knows it.
struct BackendClient: APIClient {
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

extension SessionKey {
    /// A credential that stands in the query travels as a field that the network client takes off again.
    init(_ credential: Credential) {
        var headers = credential.fields.fields.map { ResolvedRequest.Header($0.name, $0.value) }
        if let query = credential.neededQuery { headers.append(.init(BackendNetwork.queryField, query)) }
        self.init(headers: headers)
    }
}

/// Tells clients that have been answered at once what their messages are called now.
final class MergeTeller: APIClientQueueResponseHandler {
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
