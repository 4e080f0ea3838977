// Collections by folded name. Two names are one only if all their bytes are the same: a `String` also equals one that writes a
// letter in another way, and to a chat server those are two people and two rooms.

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
