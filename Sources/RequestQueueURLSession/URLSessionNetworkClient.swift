// The network over Foundation's URLSession, so that an application on Apple's systems needs no other library. A module of its
// own, because outside of Apple's systems it links FoundationNetworking and with it libcurl, which other clients do not need.

public import RequestQueue
public import RequestQueueClient
import Synchronization

#if canImport(FoundationNetworking)
    import Foundation
    public import FoundationNetworking
#else
    public import Foundation
#endif

/// A network client over a `URLSession` of its own.
///
/// Redirections are answers, no credential, cookie or cached answer of the system is used, and one deadline covers the
/// connection, the head and all of the body. The fields of an answer are in the order of their names, and those of one
/// name are one field, because `URLSession` keeps no other order.
public final class URLSessionNetworkClient: NetworkClient {
    private let session: URLSession
    private let exchanges: Exchanges
    private let largestResponse: Int

    /// - Parameters:
    ///   - configuration: from ``configuration(connectionsPerHost:)``, with changes such as a proxy.
    ///   - largestResponse: maximum bytes of a body that are kept; the rest is not read.
    public init(configuration: URLSessionConfiguration = configuration(), largestResponse: Int = 16 << 20) {
        exchanges = Exchanges()
        // The session keeps its delegate until it is invalidated.
        session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: nil)
        self.largestResponse = largestResponse
    }

    deinit { session.finishTasksAndInvalidate() }

    /// The configuration that a queue needs: no cache, no cookies, no stored credentials, and no wait for a network,
    /// since the queue decides when to try again.
    ///
    /// - Parameter connectionsPerHost: at least `QueueLimits.inFlightPerHost`, and some for requests that are not
    ///   queued. With fewer, requests wait in the session, outside of all lanes and tenants.
    public static func configuration(
        connectionsPerHost: Int = 2 * QueueLimits().inFlightPerHost
    ) -> URLSessionConfiguration {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = nil
        configuration.urlCredentialStorage = nil
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpMaximumConnectionsPerHost = connectionsPerHost
        return configuration
    }

    /// Ours: upper bound of timeouts, in milliseconds: a day.
    private static let longestTimeout: Int64 = 86_400_000

    /// See `NetworkClient.send(_:)`.
    public func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        let timeout = min(max(request.timeoutInterval, 0), Self.longestTimeout)
        let task = session.dataTask(with: try Self.outgoing(request, timeout: timeout))
        let exchange = Exchange(largestResponse: largestResponse)
        exchanges.add(exchange, for: task)
        let timer = Task {
            try await Task.sleep(for: .milliseconds(timeout))
            exchange.end(.failure(.timedOut))
            task.cancel()
        }
        defer {
            timer.cancel()
            exchanges.remove(task)
        }
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if exchange.wait(continuation) { task.resume() } else { task.cancel() }
            }
        } onCancel: {
            exchange.end(.failure(.cancelled))
            task.cancel()
        }
        return try outcome.get()
    }

    /// - Throws: `NetworkFailure.badURL`, for an address that is not one of HTTP.
    private static func outgoing(_ request: NetworkRequest, timeout: Int64) throws(NetworkFailure) -> URLRequest {
        guard let url = URL(string: request.url), let scheme = url.scheme?.lowercased(),
            scheme == "http" || scheme == "https", let host = url.host(), !host.isEmpty
        else { throw .badURL }
        var outgoing = URLRequest(url: url)
        outgoing.httpMethod = request.method.name
        outgoing.httpShouldHandleCookies = false
        // The session's own limit is for the time between two bytes. This one does not end an attempt before its deadline.
        outgoing.timeoutInterval = Double(timeout) / 1000 + 60
        for header in request.headers { outgoing.addValue(header.value, forHTTPHeaderField: header.name) }
        if !request.body.isEmpty || !request.method.isSafe { outgoing.httpBody = Data(request.body) }
        return outgoing
    }

    /// Maps an error of the session.
    static func failure(_ error: any Error) -> NetworkFailure {
        let error = error as NSError
        guard error.domain == NSURLErrorDomain else { return .networkConnectionLost }
        switch URLError.Code(rawValue: error.code) {
        case .notConnectedToInternet, .dataNotAllowed, .internationalRoamingOff, .callIsActive:
            return .notConnectedToInternet
        case .cannotFindHost, .dnsLookupFailed: return .cannotFindHost
        case .cannotConnectToHost: return .cannotConnectToHost
        case .secureConnectionFailed, .clientCertificateRequired, .clientCertificateRejected:
            return .secureConnectionFailed
        case .serverCertificateHasBadDate, .serverCertificateUntrusted, .serverCertificateHasUnknownRoot,
            .serverCertificateNotYetValid:
            return .certificateRefused
        case .timedOut: return .timedOut
        case .badURL: return .badURL
        // Of this client's own schemes, only the answer can be "unsupported".
        case .unsupportedURL, .cannotParseResponse, .cannotDecodeContentData, .cannotDecodeRawData:
            return .badServerResponse
        #if canImport(FoundationNetworking)
            // Outside of Apple's systems this stands for a connection that was closed without an answer, and TLS
            // failures have no code at all.
            case .badServerResponse: return .networkConnectionLost
            case .unknown: return secureFailure(error.localizedDescription) ?? .networkConnectionLost
        #else
            case .badServerResponse: return .badServerResponse
        #endif
        // A task that this client has cancelled has ended before. Another cancellation is the system's.
        default: return .networkConnectionLost
        }
    }

    /// What a text of libcurl says about TLS; nil if it is about something else.
    static func secureFailure(_ text: String) -> NetworkFailure? {
        guard text.contains("SSL") || text.contains("TLS") else { return nil }
        let isAboutCertificate = text.contains("certificate problem") || text.contains("certificate subject name")
        return isAboutCertificate ? .certificateRefused : .secureConnectionFailed
    }
}

/// One request and its answer so far.
private final class Exchange: Sendable {
    typealias Outcome = Result<NetworkResponse, NetworkFailure>

    private struct State {
        var head: NetworkResponse?
        var outcome: Outcome?
        var continuation: CheckedContinuation<Outcome, Never>?
    }

    private let state = Mutex(State())
    private let largestResponse: Int

    init(largestResponse: Int) { self.largestResponse = largestResponse }

    /// Waits for the end.
    ///
    /// - Returns: whether it has not ended yet.
    func wait(_ continuation: CheckedContinuation<Outcome, Never>) -> Bool {
        let outcome = state.withLock { state in
            if state.outcome == nil { state.continuation = continuation }
            return state.outcome
        }
        if let outcome { continuation.resume(returning: outcome) }
        return outcome == nil
    }

    /// Sets the end. Only the first call counts.
    func end(_ outcome: Outcome) {
        let continuation: CheckedContinuation<Outcome, Never>? = state.withLock { state in
            guard state.outcome == nil else { return nil }
            state.outcome = outcome
            defer { state.continuation = nil }
            return state.continuation
        }
        continuation?.resume(returning: outcome)
    }

    func begin(_ head: NetworkResponse) { state.withLock { $0.head = head } }

    /// - Returns: whether there is room for more.
    func add(_ data: Data) -> Bool {
        let cut: NetworkResponse? = state.withLock { state in
            let room = largestResponse - (state.head?.body.count ?? 0)
            state.head?.body += data.prefix(room)
            guard data.count > room else { return nil }
            state.head?.isCut = true
            return state.head
        }
        if let cut { end(.success(cut)) }
        return cut == nil
    }

    /// Ends with what has come, if that has a head.
    func endIfAnswered() {
        if let head = state.withLock({ $0.head }) { end(.success(head)) }
    }

    func complete(_ error: (any Error)?) {
        if let error { return end(.failure(URLSessionNetworkClient.failure(error))) }
        endIfAnswered()
        end(.failure(.badServerResponse))
    }
}

/// The delegate of a session: passes what happens to a task on to its exchange.
private final class Exchanges: NSObject, URLSessionDataDelegate, Sendable {
    private let exchanges = Mutex<[Int: Exchange]>([:])

    func add(_ exchange: Exchange, for task: URLSessionTask) {
        exchanges.withLock { $0[task.taskIdentifier] = exchange }
    }

    func remove(_ task: URLSessionTask) { _ = exchanges.withLock { $0.removeValue(forKey: task.taskIdentifier) } }

    /// Nil for a task that has ended for its caller.
    private func exchange(of task: URLSessionTask) -> Exchange? {
        exchanges.withLock { $0[task.taskIdentifier] }
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        guard let response = response as? HTTPURLResponse else { return completionHandler(.cancel) }
        let headers = response.allHeaderFields.map { ResolvedRequest.Header("\($0.key)", "\($0.value)") }
        exchange(of: dataTask)?.begin(
            NetworkResponse(status: response.statusCode, headers: headers.sorted { $0.name < $1.name }))
        completionHandler(.allow)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        if exchange(of: dataTask)?.add(data) == false { dataTask.cancel() }
    }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        let methods = [
            NSURLAuthenticationMethodDefault, NSURLAuthenticationMethodHTTPBasic, NSURLAuthenticationMethodHTTPDigest,
        ]
        guard methods.contains(challenge.protectionSpace.authenticationMethod) else {
            return completionHandler(.performDefaultHandling, nil)
        }
        // 401 is an answer. Outside of Apple's systems it has come by now, and a rejection would end the task without it.
        exchange(of: task)?.endIfAnswered()
        completionHandler(.rejectProtectionSpace, nil)
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        exchange(of: task)?.complete(error)
    }
}
