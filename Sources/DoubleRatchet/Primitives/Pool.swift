import Synchronization

/// Objects for reuse, because making one takes longer than a message. A pool never has more of them than threads have
/// used one at the same time.
struct Pool<Element: Sendable>: ~Copyable, Sendable {
    private let idle = Mutex<[Element]>([])

    /// Takes an idle object, for one user; nil if all are in use.
    package borrowing func take() -> Element? {
        idle.withLock { $0.popLast() }
    }

    package borrowing func giveBack(_ element: Element) {
        idle.withLock { $0.append(element) }
    }
}
