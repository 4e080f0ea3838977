/// A request over a connection of its own, whose answer is waited for later.
package final class PendingRequest {
    /// Where the answer comes.
    package private(set) var client: WebClient
    private let again: (() throws -> WebClient)?

    /// - Parameter again: asks the same once more; nil where that would be another request.
    init(_ client: WebClient, again: (() throws -> WebClient)?) {
        (self.client, self.again) = (client, again)
    }

    /// The answer. Who is told after a minute that the write still waits asks again, as apps do.
    package func answer(to method: String) throws -> WebAnswer {
        var answer = try client.answer(to: method, timeout: .seconds(90))
        for _ in 0..<5 where answer.status == 504 {
            guard let again else { break }
            client = try again()
            answer = try client.answer(to: method, timeout: .seconds(90))
        }
        return answer
    }

    /// Ends the connection without a word.
    package func hangUp() { client.hangUp() }
}
