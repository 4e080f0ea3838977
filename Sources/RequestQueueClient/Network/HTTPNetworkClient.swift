// The network, by AsyncHTTPClient.

public import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
public import RequestQueue

/// A network client over an `HTTPClient` of AsyncHTTPClient, which its owner shuts down.
public struct HTTPNetworkClient: NetworkClient {
    private let client: HTTPClient
    private let largestResponse: Int

    /// - Parameters:
    ///   - client: made with ``configuration``, or another one that follows no redirections.
    ///   - largestResponse: bytes of a body; a larger one is a failure.
    public init(_ client: HTTPClient, largestResponse: Int = 16 << 20) {
        (self.client, self.largestResponse) = (client, largestResponse)
    }

    /// What a queue needs of an `HTTPClient`: redirections are shown, and a connection that is refused is said at once, because
    /// waiting is the queue's business.
    public static var configuration: HTTPClient.Configuration {
        var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
        configuration.connectionPool.retryConnectionEstablishment = false
        configuration.timeout.connect = .seconds(10)
        return configuration
    }

    /// What the client speaks. Asked before, because its own refusal cannot be told from others.
    private static let schemes: Set = ["http", "https", "unix", "http+unix", "https+unix"]

    /// See ``NetworkClient/send(_:)``.
    public func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        guard Self.schemes.contains(request.url.prefix { $0 != ":" }.lowercased()) else { throw .badURL }
        var outgoing = HTTPClientRequest(url: request.url)
        outgoing.method = NIOHTTP1.HTTPMethod(rawValue: request.method.name)
        for header in request.headers { outgoing.headers.add(name: header.name, value: header.value) }
        if !request.body.isEmpty || !request.method.isSafe { outgoing.body = .bytes(request.body) }
        do {
            let deadline = NIODeadline.now() + .milliseconds(request.timeoutInterval)
            let response = try await client.execute(outgoing, deadline: deadline)
            let body = try await response.body.collect(upTo: largestResponse)
            return NetworkResponse(
                status: Int(response.status.code), headers: response.headers.map { .init($0.name, $0.value) },
                body: Array(body.readableBytesView))
        } catch {
            throw Self.failure(error)
        }
    }

    /// What an error of the libraries below means.
    static func failure(_ error: any Error) -> NetworkFailure {
        switch error {
        case let error as HTTPClientError: meaning(error)
        case let error as NIOConnectionError:
            error.connectionErrors.isEmpty && (error.dnsAError != nil || error.dnsAAAAError != nil)
                ? .cannotFindHost : .cannotConnectToHost
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError: .secureConnectionFailed
        case is HTTPParserError: .badServerResponse
        case is NIOTooManyBytesError: .responseTooLarge
        case is CancellationError: .cancelled
        case let error as IOError: error.errnoCode == ECONNREFUSED ? .cannotConnectToHost : .networkConnectionLost
        default: .networkConnectionLost
        }
    }

    private static func meaning(_ error: HTTPClientError) -> NetworkFailure {
        switch error {
        case .connectTimeout, .getConnectionFromPoolTimeout: .cannotConnectToHost
        case .readTimeout, .writeTimeout, .deadlineExceeded, .httpProxyHandshakeTimeout: .timedOut
        case .tlsHandshakeTimeout: .secureConnectionFailed
        case .cancelled: .cancelled
        case .invalidURL, .emptyHost, .emptyScheme, .missingSocketPath,
            .invalidHeaderFieldNames([]):
            .badURL
        default: .networkConnectionLost
        }
    }
}
