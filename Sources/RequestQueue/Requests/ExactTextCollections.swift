// Collections by folded name. Names are compared byte by byte: two of them can be equal as `String`, and to a chat
// server they are two people or two rooms.

extension Dictionary where Key == ExactText {
    package subscript(name: String) -> Value? {
        get { self[ExactText(name)] }
        _modify { yield &self[ExactText(name)] }
    }

    package subscript(name: String, default value: @autoclosure () -> Value) -> Value {
        get { self[ExactText(name), default: value()] }
        _modify { yield &self[ExactText(name), default: value()] }
    }

    @discardableResult
    package mutating func removeValue(forKey name: String) -> Value? { removeValue(forKey: ExactText(name)) }
}

extension Set where Element == ExactText {
    package func contains(_ name: String) -> Bool { contains(ExactText(name)) }

    @discardableResult
    package mutating func insert(_ name: String) -> Bool { insert(ExactText(name)).inserted }

    @discardableResult
    package mutating func remove(_ name: String) -> Bool { remove(ExactText(name)) != nil }
}
