// The admin service behind a transport of document 004: every request has one reply.
//
// A subscription is a request for each event, which waits until there is one. Streams of replies would need another frame,
// another face of both products, and other tables in the interface to Rust and C; and an event of the status is made ten
// times a second at most. Because a client asks for one event at a time, nothing is sent to a client that does not take
// it, and a request that is cancelled ends the subscription.

import Foundation
import Synchronization
import TransportsService

/// Takes the requests of transports, and holds the subscriptions of their clients.
final class AdminExchange: Sendable {
    /// The protocol of the admin service.
    static let proto: ProtocolID = "pawl.admin/1"
    /// Ours: 256 MiB for the longest listing. Only the owner of the gateway connects.
    static let limits: TransportLimits = {
        var limits = TransportLimits()
        limits.message = 256 << 20
        return limits
    }()
    /// Ours: a subscription that is not asked for so long has been left by its client.
    static let patience: Duration = .seconds(30)

    /// A request about a subscription. All others are ``AdminRequest``s.
    enum Request: Codable, Sendable {
        case subscribe(AdminSubscription)
        /// Waits for the next event of a subscription.
        case next(UInt64)
        case end(UInt64)
    }

    /// The reply to ``Request/subscribe(_:)``.
    struct Opened: Codable, Sendable {
        var subscription: UInt64
    }

    private struct Entry {
        var events: AdminEvents
        /// Whether a request waits for an event.
        var isAsked = false
        /// The number of requests so far.
        var asked = 0
    }

    private struct State {
        var last: UInt64 = 0
        var entries: [UInt64: Entry] = [:]
        var isClosed = false
    }

    private let service: AdminService
    private let patience: Duration
    private let state = Mutex(State())

    /// - Parameter patience: see ``patience``; tests have less.
    init(_ service: AdminService, patience: Duration = AdminExchange.patience) {
        (self.service, self.patience) = (service, patience)
    }

    /// What a transport gives its requests to. It keeps this object alive.
    var processor: TransportProcessor {
        TransportProcessor(supports: { $0 == Self.proto }, process: { await self.process($0) })
    }

    /// How many subscriptions there are.
    var count: Int { state.withLock { $0.entries.count } }

    /// Ends all subscriptions, and makes no others.
    func close() {
        let entries = state.withLock { state in
            defer { state.entries = [:] }
            state.isClosed = true
            return Array(state.entries.values)
        }
        for entry in entries { entry.events.end() }
    }

    private func process(_ data: Data) async -> Result<Data, TesseractError> {
        guard data.count <= AdminService.requestLimit, let request = try? JSONDecoder().decode(Request.self, from: data)
        else { return .success(Data(await service.answer(Array(data)))) }
        switch request {
        case .subscribe(let subscription): return subscribe(subscription)
        case .next(let id): return await next(id)
        case .end(let id):
            state.withLock { $0.entries.removeValue(forKey: id) }?.events.end()
            return .success(Data("{}".utf8))
        }
    }

    private static let ended = TesseractError.closed(reason: "the subscription has ended")

    private func subscribe(_ subscription: AdminSubscription) -> Result<Data, TesseractError> {
        guard let request = try? JSONEncoder().encode(subscription) else { return .failure(Self.ended) }
        let events = service.subscribe(Array(request))
        let id = state.withLock { state -> UInt64? in
            guard !state.isClosed else { return nil }
            state.last += 1
            state.entries[state.last] = Entry(events: events)
            return state.last
        }
        guard let id, let reply = try? JSONEncoder().encode(Opened(subscription: id)) else {
            events.end()
            return .failure(Self.ended)
        }
        expire(id, asked: 0)
        return .success(reply)
    }

    private func next(_ id: UInt64) async -> Result<Data, TesseractError> {
        enum Turn { case wait(AdminEvents, Int), taken, none }
        let turn: Turn = state.withLock { state in
            guard var entry = state.entries[id] else { return .none }
            // One task reads the events of a channel.
            guard !entry.isAsked else { return .taken }
            (entry.isAsked, entry.asked) = (true, entry.asked + 1)
            state.entries[id] = entry
            return .wait(entry.events, entry.asked)
        }
        switch turn {
        case .none: return .failure(Self.ended)
        case .taken: return .failure(.weird(reason: "another request waits for the next event"))
        case .wait(let events, let asked):
            // Nil also if the request is cancelled: its client has left.
            guard let event = await events.next() else {
                state.withLock { $0.entries[id] = nil }
                return .failure(Self.ended)
            }
            state.withLock { $0.entries[id]?.isAsked = false }
            expire(id, asked: asked)
            return .success(Data(event))
        }
    }

    /// Ends a subscription that is not asked again in time.
    private func expire(_ id: UInt64, asked: Int) {
        Task { [weak self, patience] in
            try? await Task.sleep(for: patience)
            guard let self else { return }
            let left = state.withLock { state -> AdminEvents? in
                guard let entry = state.entries[id], !entry.isAsked, entry.asked == asked else { return nil }
                state.entries[id] = nil
                return entry.events
            }
            left?.end()
        }
    }
}
