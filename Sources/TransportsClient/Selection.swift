// The choice of a transport for one service. One selection runs at a time, and all requests that wait share it; each of
// them may be cancelled alone.

import Foundation
import Synchronization
import TransportsCore

/// Selects a transport and keeps its connection.
final class Selection: Sendable {
    /// A connection, and whose turn it is on it if it has one exchange at a time.
    final class Link: Sendable {
        let connection: any Connection
        let turn = Turn()

        init(_ connection: any Connection) { self.connection = connection }
    }

    let proto: ProtocolID
    private let transports: [String: any Transport]
    private let delegate: any TesseractDelegate
    private let limits: TransportLimits
    private let current = Mutex<Once<Result<Link, TesseractError>>?>(nil)

    init(
        transports: [String: any Transport], delegate: any TesseractDelegate, proto: ProtocolID, limits: TransportLimits
    ) {
        (self.transports, self.delegate, self.proto, self.limits) = (transports, delegate, proto, limits)
    }

    /// The connection, selected now if there is none.
    func link() async -> Result<Link, TesseractError> {
        guard !Task.isCancelled else { return .failure(.cancelled) }
        let (selected, isNew) = current.withLock { current in
            if let current { return (current, false) }
            let new = Once<Result<Link, TesseractError>>()
            current = new
            return (new, true)
        }
        if let result = selected.current { return result }
        if isNew {
            Task {
                let result = await select()
                // All requests that wait receive the failure; the next one selects again.
                if case .failure = result { current.withLock { if $0 === selected { $0 = nil } } }
                selected.fulfil(result)
            }
        }
        let own = Once<Result<Link, TesseractError>>()
        let waiting = Task { own.fulfil(await selected.value()) }
        defer { waiting.cancel() }
        return await own.value { own.fulfil(.failure(.cancelled)) }
    }

    /// Forgets a connection that failed. The next request selects again.
    func drop(_ link: Link) {
        current.withLock { current in
            if case .success(let kept) = current?.current, kept === link { current = nil }
        }
    }

    private func select() async -> Result<Link, TesseractError> {
        let statuses = await statuses()
        guard let id = await delegate.select(transports: statuses) else { return .failure(.cancelled) }
        guard let transport = transports[id] else { return .failure(.unknownTransport(id: id)) }
        return .success(Link(transport.connect(proto: proto)))
    }

    /// Asks all transports at once, each with a deadline.
    private func statuses() async -> [String: Status] {
        let (proto, limits) = (proto, limits)
        let late = Status.error(.timedOut(reason: "no status within \(limits.status)"))
        return await withTaskGroup(of: (String, Status).self) { group in
            for (id, transport) in transports {
                group.addTask {
                    (
                        id,
                        await within(limits.status, late: late, cancelled: .error(.cancelled)) {
                            await transport.status(proto: proto)
                        }
                    )
                }
            }
            return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
    }
}

/// Gives a turn to one task at a time, in the order in which they asked.
final class Turn: Sendable {
    private struct State: Sendable {
        var isTaken = false
        var waiting: [Once<Bool>] = []
    }

    private let state = Mutex(State())

    /// - Returns: false if the task was cancelled before its turn came.
    func take() async -> Bool {
        let turn: Once<Bool>? = state.withLock { state in
            guard state.isTaken else {
                state.isTaken = true
                return nil
            }
            let turn = Once<Bool>()
            state.waiting.append(turn)
            return turn
        }
        guard let turn else { return true }
        return await turn.value { turn.fulfil(false) }
    }

    /// Gives the turn to the next task that still waits.
    func give() {
        while true {
            let next: Once<Bool>? = state.withLock { state in
                guard !state.waiting.isEmpty else {
                    state.isTaken = false
                    return nil
                }
                return state.waiting.removeFirst()
            }
            guard let next, !next.fulfil(true) else { return }
        }
    }
}
