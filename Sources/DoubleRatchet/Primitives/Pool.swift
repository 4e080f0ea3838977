import Synchronization

/// Objects that are used again and again, for making one takes longer than a message. There are never more of them than threads
/// that used one at the same time.
struct Pool<Element: Sendable>: ~Copyable, Sendable {
    private let idle = Mutex<[Element]>([])

    /// One that nobody else uses, or nil where all are in use.
    package borrowing func take() -> Element? {
        idle.withLock { $0.popLast() }
    }

    package borrowing func giveBack(_ element: Element) {
        idle.withLock { $0.append(element) }
    }
}
