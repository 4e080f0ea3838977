/// Values of which there is usually one, which needs no memory of its own.
@usableFromInline
struct Few<Element> {
    @usableFromInline
    var first: Element?
    @usableFromInline
    var rest: [Element] = []

    @inlinable
    init() {}

    @inlinable
    mutating func append(_ element: Element) {
        if first == nil { first = element } else { rest.append(element) }
    }
}
