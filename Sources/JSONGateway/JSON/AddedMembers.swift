// Members to add to one object of a document.

import JSONCodec

/// Members to add to one object, some of them in nested objects that are added too.
struct AddedMembers: Sendable {
    package indirect enum Member: Sendable {
        case value(JSONFragment)
        case object(AddedMembers)

        package var fragment: JSONFragment {
            switch self {
            case .value(let value): value
            case .object(let members): .object(members.fragments)
            }
        }
    }

    /// In the order of the calls to ``add(_:_:)``.
    private var members: [(name: String, member: Member)] = []

    package var fragments: [(name: String, value: JSONFragment)] { members.map { ($0.name, $0.member.fragment) } }

    /// Adds a value at a path of names.
    ///
    /// - Returns: false if another value was added at the path, or at a part of it.
    package mutating func add(_ names: ArraySlice<String>, _ value: JSONFragment) -> Bool {
        guard let name = names.first else { return false }
        let rest = names.dropFirst()
        guard let index = members.firstIndex(where: { $0.name == name }) else {
            if rest.isEmpty {
                members.append((name, .value(value)))
                return true
            }
            var inner = AddedMembers()
            let isAdded = inner.add(rest, value)
            members.append((name, .object(inner)))
            return isAdded
        }
        guard !rest.isEmpty, case .object(var inner) = members[index].member else { return false }
        let isAdded = inner.add(rest, value)
        members[index].member = .object(inner)
        return isAdded
    }
}
