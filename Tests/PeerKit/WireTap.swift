import Foundation
import Glibc
import Synchronization

/// A TCP relay that keeps every byte of both directions, and can be told to misbehave as a network or a backend does.
///
/// It stands between the gateway and the backend, so `fromClient` is what the backend is shown by the gateway, and
/// `fromServer` what the backend says. Bytes are recorded as they came in, before any rewriting.
package final class WireTap: Sendable {
    package enum Direction: Sendable {
        case fromClient
        case fromServer
    }

    /// One relayed connection.
    package struct Recording: Sendable {
        package let id: Int
        package internal(set) var fromClient: [UInt8] = []
        package internal(set) var fromServer: [UInt8] = []
        package internal(set) var isOpen = true

        package func bytes(_ direction: Direction) -> [UInt8] {
            direction == .fromClient ? fromClient : fromServer
        }

        /// Complete lines, without their ends.
        package func lines(_ direction: Direction) -> [IRCLine] {
            bytes(direction).split(separator: 10, omittingEmptySubsequences: false).dropLast().map {
                IRCLine(Array($0.last == 13 ? $0.dropLast() : $0))
            }
        }

        /// The length of the longest line with its end, tags left out: what a server compares with 512.
        package func longestLine(_ direction: Direction) -> Int {
            bytes(direction).split(separator: 10).map { line in
                let tagged = line.first == UInt8(ascii: "@")
                let body = tagged ? line.drop { $0 != 32 }.dropFirst() : line
                return body.count + 1
            }.max() ?? 0
        }
    }

    /// Gets one line with its end, gives the lines to pass on: none drops it, two of it duplicate it.
    package typealias Rewriter = @Sendable (_ line: [UInt8]) -> [[UInt8]]

    package let port: UInt16
    private let reservation: FreePort
    private let loop: RelayLoop

    /// Listens on a port of its own and connects to `backend` once per connection that it accepts.
    package init(backend: UInt16) throws {
        reservation = try FreePort()
        port = reservation.number
        loop = try RelayLoop(port: port, backend: backend)
        let loop = loop
        let thread = Thread { loop.run() }
        thread.name = "WireTap"
        thread.start()
    }

    deinit {
        loop.stop()
    }

    package func stop() {
        loop.stop()
    }

    // MARK: Looking

    /// Every connection so far, in the order of their beginning.
    package var recordings: [Recording] {
        loop.state.withLock { $0.recordings }
    }

    package func bytes(_ direction: Direction) -> [UInt8] {
        recordings.flatMap { $0.bytes(direction) }
    }

    package func lines(_ direction: Direction) -> [IRCLine] {
        recordings.flatMap { $0.lines(direction) }
    }

    package func longestLine(_ direction: Direction) -> Int {
        recordings.map { $0.longestLine(direction) }.max() ?? 0
    }

    /// True when the text went through in either direction, as it is or in Base64 or hexadecimal, at any alignment.
    package func shows(_ text: String) -> Bool {
        let search = PlaintextSearch(text)
        return recordings.contains { search.finds(in: Data($0.fromClient)) || search.finds(in: Data($0.fromServer)) }
    }

    // MARK: Misbehaving

    /// While true nothing is read from that side, so that the sender's buffers fill.
    package func stall(_ direction: Direction, _ stalled: Bool = true) {
        loop.change { state in
            if direction == .fromClient { state.stallsClient = stalled } else { state.stallsServer = stalled }
        }
    }

    /// Every connection from now on is torn on both sides after exactly so many bytes of that direction; nil: none is.
    package func resetAfter(_ count: Int?, of direction: Direction) {
        loop.change { state in
            if direction == .fromClient { state.clientLimit = count } else { state.serverLimit = count }
        }
    }

    /// Tears all connections now.
    package func resetAll() {
        loop.change { $0.tearsAll = true }
    }

    /// While true new connections are torn as soon as they come, as if nobody were there.
    package func refuse(_ refuses: Bool = true) {
        loop.change { $0.refuses = refuses }
    }

    /// The next so many answers to requests whose bytes show `mark` are lost, with their connection: the backend has done what it
    /// was asked for, and nobody hears of it.
    package func loseAnswers(_ count: Int = 1, to mark: String) {
        loop.change { $0.losses = (Array(mark.utf8), count) }
    }

    /// How many more answers are to be lost.
    package var answersToLose: Int {
        loop.state.withLock { $0.losses?.count ?? 0 }
    }

    /// Passes every line of that direction through `rewriter`; nil passes bytes on as they come.
    package func rewrite(_ direction: Direction, _ rewriter: Rewriter?) {
        loop.change { state in
            if direction == .fromClient { state.clientRewriter = rewriter } else { state.serverRewriter = rewriter }
        }
    }

    /// Says a line in the name of one side, between two lines of that side; on the newest connection if none is named.
    package func inject(_ line: String, _ direction: Direction, connection: Int? = nil) {
        loop.change { $0.injections.append((connection, direction, Array(line.utf8) + [13, 10])) }
    }
}
