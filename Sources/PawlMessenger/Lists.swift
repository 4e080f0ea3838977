// Lists that change: each change of what a list shows makes a new list, and a slow reader gets the newest only.

import Messenger
import Synchronization

/// Tells the readers of lists that something has changed.
final class ChangeSignals: Sendable {
    enum Scope: Hashable, Sendable {
        case chats
        case chat(Username)
        case groups
        case group(GroupChatId)
        case devices
    }

    private struct State {
        var next = 0
        var readers: [Int: (scope: Scope, signal: AsyncStream<Void>.Continuation)] = [:]
        var isClosed = false
    }

    private let state = Mutex(State())

    func notify(_ scope: Scope) {
        let signals = state.withLock { $0.readers.values.filter { $0.scope == scope }.map(\.signal) }
        for signal in signals { signal.yield() }
    }

    /// Tells the readers of the messages of a chat.
    func notify(of message: AnyChatMessage) { notify(message.group.map { .group($0) } ?? .chat(message.chat)) }

    func close() {
        let signals = state.withLock { state in
            state.isClosed = true
            return state.readers.values.map(\.signal)
        }
        for signal in signals { signal.finish() }
    }

    /// Ours: the pause after a list could not be read.
    private static let pause: Duration = .seconds(1)

    /// A list, as it is now and after each change. It ends when the messenger is closed.
    ///
    /// - Parameter load: reads the list. It throws ``MessengerClosed`` when the messenger is closed; after any other error it
    ///   is called again, such as when the batch of the read was not committed.
    func list<Value: Sendable>(
        _ scope: Scope, _ load: @escaping @Sendable () async throws -> Value
    ) -> AsyncStream<Value> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { list in
            let (changes, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
            let id = state.withLock { state in
                state.next += 1
                state.readers[state.next] = (scope, signal)
                return state.next
            }
            signal.yield()
            if state.withLock({ $0.isClosed }) { signal.finish() }
            let task = Task {
                for await _ in changes {
                    do {
                        list.yield(try await load())
                    } catch is MessengerClosed {
                        break
                    } catch {
                        try? await Task.sleep(for: Self.pause)
                        signal.yield()
                    }
                }
                list.finish()
            }
            list.onTermination = { [weak self] _ in
                self?.state.withLock { _ = $0.readers.removeValue(forKey: id) }
                task.cancel()
            }
        }
    }
}
