// One attempt: the last additions to the request, the call, and the meaning of the answer.

import Foundation
import RequestQueue

/// Sends one request once.
struct Attempt: Sendable {
    let client: any APIClient
    let dispatch: QueueBatch.Dispatch
    let credentials: any CredentialStore

    /// How it ended, and the session key that was sent with it; nil if it was not sent, because there was no key.
    func run() async -> (reply: AttemptReply, sent: SessionKey?)? {
        let begun = ContinuousClock.now
        let queued = dispatch.request.config
        let config = await client.prepareRequest(queued)
        let sendsKey = config.includeSessionKey && client.sendsSession(with: config)
        let session = sendsKey ? credentials.key(for: APIClientQueueRequest(dispatch.request)) : nil
        if sendsKey, session == nil, queued.includeSessionKey { return nil }
        var request: NetworkRequest
        do throws(UnresolvedReference) {
            request = try client.networkRequest(config, names: dispatch.names, session: session)
        } catch {
            // `prepareRequest` has added an entity without a remote identifier. No placeholder may go out.
            return (.failure(.network(.badURL), retryAfter: nil, headers: [], body: []), session)
        }
        // One deadline for the whole attempt, so the time for the preparation is subtracted.
        request.timeoutInterval = max(request.timeoutInterval - (ContinuousClock.now - begun).milliseconds, 1)
        // A key that the request has already, as from a proxy, is sent unchanged.
        if !config.method.isSafe, request.header("Idempotency-Key") == nil {
            request.headers.append(.init("Idempotency-Key", dispatch.request.idempotencyKey))
        }
        do throws(NetworkFailure) {
            // Its idempotency key makes a write unlike all others, so that only the application's own deduplicator may
            // find an equal one.
            let isUnlikeOthers = !config.method.isSafe && client.deduplicator is APIRequestDeduplicator
            let response = try await client.send(request, once: config.deduplicate && !isUnlikeOthers)
            return (reply(response), session)
        } catch {
            return (.failure(.network(error), retryAfter: nil, headers: [], body: []), session)
        }
    }

    private func reply(_ response: NetworkResponse) -> AttemptReply {
        guard RetryTable.isSuccess(response.status) else {
            let wall = QueueEngine.now().wall
            let retryAfter = response.header("Retry-After").flatMap { RetryAfter.milliseconds($0, now: wall) }
            let isForeign =
                RetryTable.ambiguousOrigin.contains(response.status)
                && client.errorPayload(from: Data(response.body)) == nil
            return .failure(
                isForeign ? .unexpected(response.status) : .status(response.status), retryAfter: retryAfter,
                headers: response.headers, body: response.body)
        }
        let answer = APIClientResponse(
            data: Data(response.body), status: response.status, headers: response.headers,
            jsonCoderConfig: client.jsonCoderConfig)
        return .success(
            status: response.status, headers: response.headers, body: response.body,
            identifiers: client.identifiers(in: answer, for: APIClientQueueRequest(dispatch.request)),
            isCut: response.isCut)
    }
}

extension Task<Void, Never> {
    /// Begins a task on this thread, up to its first suspension. For many tasks this costs a fraction of waking another
    /// thread for each.
    ///
    /// - Parameter executor: runs what comes after a suspension; nil for Swift's thread pool.
    static func beginning(
        on executor: (any TaskExecutor)? = nil, _ body: sending @escaping @isolated(any) () async -> Void
    ) -> Task {
        if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
            return .immediate(executorPreference: executor, operation: body)
        }
        return Task(executorPreference: executor, operation: body)
    }
}

extension AttemptReply {
    /// The reply without the header fields that must not be stored.
    func keeping(_ keeps: (String) -> Bool) -> AttemptReply {
        switch self {
        case .success(let status, let headers, let body, let identifiers, let isCut):
            .success(
                status: status, headers: headers.filter { keeps($0.name) }, body: body, identifiers: identifiers,
                isCut: isCut)
        case .failure(let failure, let retryAfter, let headers, let body):
            .failure(failure, retryAfter: retryAfter, headers: headers.filter { keeps($0.name) }, body: body)
        }
    }
}

extension RequestOutcome {
    /// The outcome in the form that handlers get.
    func clientResult(_ client: any APIClient) -> APIClientQueueResult<Data, APIError> {
        switch result {
        case .success(let status):
            .success(
                APIClientResponse(
                    data: Data(body), status: status, headers: headers, jsonCoderConfig: client.jsonCoderConfig))
        case .aborted: .aborted
        case .failure(let status?): .failure(.api(status: status, client.errorPayload(from: Data(body))))
        case .failure(nil): .failure(.queue(cause ?? "It could not be sent."))
        }
    }
}
