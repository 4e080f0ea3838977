// The network over AsyncHTTPClient.

public import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
public import RequestQueue
public import RequestQueueClient

/// A network client over an `HTTPClient` of AsyncHTTPClient, which the caller shuts down.
public struct HTTPNetworkClient: NetworkClient {
    private let client: HTTPClient
    private let largestResponse: Int

    /// - Parameters:
    ///   - client: made with ``configuration``, or another one that follows no redirections.
    ///   - largestResponse: maximum bytes of a body that are kept; the rest is not read.
    public init(_ client: HTTPClient, largestResponse: Int = 16 << 20) {
        (self.client, self.largestResponse) = (client, largestResponse)
    }

    /// The configuration of an `HTTPClient` that a queue needs:
    ///
    /// - Redirections are not followed: they are answers.
    /// - A connection that is refused is a failure at once. The queue decides when to try again.
    /// - The pool has no limit of its own. The queue begins at most `QueueLimits.inFlightPerHost` requests to a host,
    ///   each with a connection. In a pool with a lower limit, requests would wait for a few that hang, outside of all
    ///   lanes and tenants.
    /// - HTTP/1.1, one request at a time on each connection, so that a connection that hangs holds up one request.
    public static var configuration: HTTPClient.Configuration {
        var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
        configuration.connectionPool.retryConnectionEstablishment = false
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = .max
        configuration.httpVersion = .http1Only
        configuration.timeout.connect = .seconds(10)
        return configuration
    }

    /// Ours: upper bound of timeouts, in milliseconds: a day.
    private static let longestTimeout: Int64 = 86_400_000

    /// The schemes of the client. Checked first, because the client's own error for others is not specific.
    private static let schemes: Set = ["http", "https", "unix", "http+unix", "https+unix"]

    /// See `NetworkClient.send(_:)`.
    public func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        guard Self.schemes.contains(request.url.prefix { $0 != ":" }.lowercased()) else { throw .badURL }
        var outgoing = HTTPClientRequest(url: request.url)
        outgoing.method = NIOHTTP1.HTTPMethod(rawValue: request.method.name)
        for header in request.headers { outgoing.headers.add(name: header.name, value: header.value) }
        if !request.body.isEmpty || !request.method.isSafe { outgoing.body = .bytes(request.body) }
        do {
            let deadline = NIODeadline.now() + .milliseconds(min(max(request.timeoutInterval, 0), Self.longestTimeout))
            let response = try await client.execute(outgoing, deadline: deadline)
            let (body, isCut) = try await collect(response.body, until: deadline)
            return NetworkResponse(
                status: Int(response.status.code), headers: response.headers.map { .init($0.name, $0.value) },
                body: body, isCut: isCut)
        } catch {
            let failure = Self.failure(error)
            // A client that is shut down cancels requests that nobody has given up.
            throw failure == .cancelled && !Task.isCancelled ? .networkConnectionLost : failure
        }
    }

    /// Reads a body within the deadline; the client's own one covers only the head. A body that is too large is cut,
    /// because the head already shows how the request ended.
    private func collect(
        _ body: HTTPClientResponse.Body, until deadline: NIODeadline
    ) async throws -> (bytes: [UInt8], isCut: Bool) {
        let limit = largestResponse
        return try await withThrowingTaskGroup(of: (bytes: [UInt8], isCut: Bool).self) { group in
            defer { group.cancelAll() }
            group.addTask {
                var bytes: [UInt8] = []
                for try await part in body {
                    guard part.readableBytes <= limit - bytes.count else {
                        bytes += part.readableBytesView.prefix(limit - bytes.count)
                        return (bytes, true)
                    }
                    bytes += part.readableBytesView
                }
                return (bytes, false)
            }
            group.addTask {
                try await Task.sleep(for: .nanoseconds((deadline - NIODeadline.now()).nanoseconds))
                throw NetworkFailure.timedOut
            }
            return try await group.next() ?? ([], false)
        }
    }

    /// Maps an error of the libraries below.
    package static func failure(_ error: any Error) -> NetworkFailure {
        switch error {
        case let error as NetworkFailure: error
        case let error as HTTPClientError: meaning(error)
        case let error as NIOConnectionError:
            error.connectionErrors.isEmpty && (error.dnsAError != nil || error.dnsAAAAError != nil)
                ? .cannotFindHost : .cannotConnectToHost
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError:
            isAboutCertificate(error) ? .certificateRefused : .secureConnectionFailed
        case is HTTPParserError: .badServerResponse
        case is CancellationError: .cancelled
        case let error as IOError: error.errnoCode == ECONNREFUSED ? .cannotConnectToHost : .networkConnectionLost
        default: .networkConnectionLost
        }
    }

    /// BoringSSL has one code for all faults of a certificate, and the library has no name for it.
    private static func isAboutCertificate(_ error: any Error) -> Bool {
        if let error = error as? NIOSSLExtraError, error == .failedToValidateHostname { return true }
        return "\(error)".contains("CERTIFICATE_VERIFY_FAILED")
    }

    private static func meaning(_ error: HTTPClientError) -> NetworkFailure {
        switch error {
        case .connectTimeout: .cannotConnectToHost
        case .getConnectionFromPoolTimeout: .noFreeConnection
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
