/// A few sessions, newest first, in their own memory, because an array cannot hold noncopyable values.
struct SessionList: ~Copyable, Sendable {
    private let capacity: Int
    package private(set) var count = 0
    /// Reached only through this value, which has one owner.
    private nonisolated(unsafe) var memory: UnsafeMutablePointer<Session>?

    /// Allocates no memory before the first session.
    init(capacity: Int) {
        self.capacity = capacity
    }

    deinit {
        memory?.deinitialize(count: count)
        memory?.deallocate()
    }

    private var base: UnsafeMutablePointer<Session> {
        guard let memory else { preconditionFailure("there is no session in an empty list") }
        return memory
    }

    subscript(index: Int) -> Session {
        _read {
            precondition(index >= 0 && index < count)
            yield base[index]
        }
        _modify {
            precondition(index >= 0 && index < count)
            yield &base[index]
        }
    }

    /// Inserts a session at the front. If the list is full, the last one is dropped.
    mutating func insert(_ session: consuming Session) {
        let start = memory ?? .allocate(capacity: capacity)
        memory = start
        if count == capacity { _ = remove(at: count - 1) }
        if count > 0 { (start + 1).moveInitialize(from: start, count: count) }
        start.initialize(to: session)
        count += 1
    }

    package mutating func remove(at index: Int) -> Session {
        precondition(index >= 0 && index < count)
        let session = (base + index).move()
        let behind = count - index - 1
        if behind > 0 { (base + index).moveInitialize(from: base + index + 1, count: behind) }
        count -= 1
        return session
    }

    mutating func removeAll() {
        memory?.deinitialize(count: count)
        count = 0
    }
}
