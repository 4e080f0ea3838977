// The admin service: one function from the bytes of a request to the bytes of its answer, and one subscription. It knows
// no socket: a transport frames the bytes, and may only be opened by the owner of the gateway.

import Foundation
import Synchronization

/// What operators can do with a running gateway.
struct AdminService: Sendable {
    /// Ours: longest request, in bytes. The longest command has some names of rooms.
    static let requestLimit = 64 * 1024
    /// Ours: subscriptions at one time; each makes reports of its own, which read the store.
    static let subscriptionLimit = 16
    /// Ours: events that wait for a subscriber. A subscriber that is this far behind does not read.
    static let eventLimit = 16
    /// Ours: reports of all subscriptions together take one part in this many of the time. Each reads tables of the store, which
    /// may have a hundred thousand rows.
    private static let share = 10
    /// Ours: the longest pause after a report, in seconds. Nobody who watches believes a page that is older.
    private static let longestRest = Duration.seconds(60)

    private let perform: @Sendable ([String]) async -> AdminAnswer
    private let changes: StateChanges
    private let subscriptions = Shared(0)

    /// - Parameters:
    ///   - changes: wakes the subscriptions.
    ///   - perform: performs the words of a command.
    init(changes: StateChanges, perform: @escaping @Sendable ([String]) async -> AdminAnswer) {
        (self.changes, self.perform) = (changes, perform)
    }

    init(_ gateway: Gateway) {
        self.init(changes: gateway.stateChanges) { await AdminGrammar.perform($0, on: gateway) }
    }

    init(_ standby: Standby) {
        self.init(changes: standby.stateChanges) { await standby.perform($0) }
    }

    // MARK: Commands

    /// Performs the command of a request, and returns the answer. Every request has an answer.
    func answer(_ request: [UInt8]) async -> [UInt8] {
        do throws(Refusal) {
            return Self.bytes(await perform(try Self.read(AdminRequest.self, request).words))
        } catch {
            return Self.bytes(error.answer)
        }
    }

    private struct Refusal: Error {
        var answer: AdminAnswer

        init(_ code: FailureCode, _ text: String) { answer = .failure(.init(code, text), exit: ExitStatus.usage) }
    }

    private static func read<Request: Decodable>(_: Request.Type, _ bytes: [UInt8]) throws(Refusal) -> Request {
        guard bytes.count <= requestLimit else {
            throw Refusal(.commandTooLong, "The command is longer than \(requestLimit) bytes.")
        }
        guard let request = try? JSONDecoder().decode(Request.self, from: Data(bytes)) else {
            throw Refusal(.notACommand, "This is not a command of pawl.")
        }
        return request
    }

    private static func bytes(_ value: some Encodable) -> [UInt8] {
        guard let data = try? JSONEncoder().encode(value) else { return [] }
        return Array(data)
    }

    // MARK: The subscription

    /// Subscribes to the status.
    ///
    /// The first report comes at once, then an event at each interval and after each act. A report is sent only if it
    /// differs from the last one.
    ///
    /// - Parameter ended: called once, when no more events are made; those that wait can still be read.
    /// - Returns: the events, each an ``AdminEvent``. A request that is refused has one event.
    func subscribe(_ request: [UInt8], ended: @escaping @Sendable () -> Void = {}) -> AdminEvents {
        let channel = EventChannel<[UInt8]>(limit: Self.eventLimit, onEnd: ended)
        let subscription: AdminSubscription
        do throws(Refusal) {
            subscription = try Self.read(AdminSubscription.self, request)
        } catch {
            return Self.refuse(error.answer, channel)
        }
        guard AdminSubscription.intervals.contains(subscription.every) else {
            let text = "The interval is \(AdminSubscription.intervalText)."
            return Self.refuse(Refusal(.wrongInterval, text).answer, channel)
        }
        let isAdmitted = subscriptions.withLock { count in
            guard count < Self.subscriptionLimit else { return false }
            count += 1
            return true
        }
        guard isAdmitted else {
            let text = "\(Self.subscriptionLimit) others watch this gateway already. End one of them first."
            return Self.refuse(.failure(.init(.tooManyWatchers, text)), channel)
        }
        return AdminEvents(channel, report(subscription, to: channel))
    }

    private static func refuse(_ answer: AdminAnswer, _ channel: EventChannel<[UInt8]>) -> AdminEvents {
        channel.end(with: bytes(AdminEvent.ended(answer: answer)))
        return AdminEvents(channel, nil)
    }

    /// The pause after a report, so that reports do not take the time of messages.
    ///
    /// - Parameters:
    ///   - time: that the report took.
    ///   - count: subscriptions at the moment.
    static func rest(after time: Duration, subscriptions count: Int) -> Duration {
        min(time * (share * max(count, 1) - 1), longestRest)
    }

    /// Makes reports until the channel accepts no more events.
    private func report(_ subscription: AdminSubscription, to channel: EventChannel<[UInt8]>) -> Task<Void, Never> {
        let words = ["status"] + (subscription.json ? ["--json"] : [])
        let overflow = Self.bytes(
            AdminEvent.ended(
                answer: .failure(
                    .init(.slowReader, "This reader is too slow: \(Self.eventLimit) reports were waiting for it."))))
        return Task { [changes, perform, subscriptions] in
            // One report is due, however often it was asked for while the last one was made.
            let (due, wake) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
            let listener = changes.add { wake.yield() }
            let timer = Task {
                while !Task.isCancelled {
                    wake.yield()
                    try await Task.sleep(for: .seconds(subscription.every))
                }
            }
            defer {
                timer.cancel()
                changes.remove(listener)
                subscriptions.withLock { $0 -= 1 }
                channel.end()
            }
            var last: AdminAnswer?
            for await _ in due {
                let begin = ContinuousClock.now
                let answer = await perform(words)
                let event = answer == last ? AdminEvent.unchanged : .status(answer: answer)
                last = answer
                guard channel.add(Self.bytes(event), overflow: overflow) else { return }
                let rest = Self.rest(after: ContinuousClock.now - begin, subscriptions: subscriptions.withLock { $0 })
                // A subscription that has ended is cancelled, and so is the sleep.
                try? await Task.sleep(for: rest)
            }
        }
    }
}

/// The events of one subscription. It ends when its last reference does.
struct AdminEvents: AsyncSequence, Sendable {
    /// Waits for the next event; nil after the last, or if the task is cancelled. One task at a time.
    func next() async -> [UInt8]? { await channel.next() }

    /// Ends the reports. Events that wait can still be read.
    func end() { channel.end() }

    /// Ends the reports with the last reference to the events.
    private final class Lifetime: Sendable {
        let reports: Task<Void, Never>?

        init(_ reports: Task<Void, Never>?) { self.reports = reports }

        deinit { reports?.cancel() }
    }

    struct AsyncIterator: AsyncIteratorProtocol {
        private let events: AdminEvents

        fileprivate init(_ events: AdminEvents) { self.events = events }

        mutating func next() async -> [UInt8]? { await events.channel.next() }
    }

    private let channel: EventChannel<[UInt8]>
    private let lifetime: Lifetime

    fileprivate init(_ channel: EventChannel<[UInt8]>, _ reports: Task<Void, Never>?) {
        (self.channel, lifetime) = (channel, Lifetime(reports))
    }

    func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }
}
