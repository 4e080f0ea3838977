/// Names an entity by what its creator called it, before the backend has given it a name. Two are equal if their bytes are, as in
/// the store: a letter that is written in two ways makes two names.
public struct EntityReference: Hashable, Sendable, CustomStringConvertible {
    /// What kind of entity it is, such as `message`. Local identifiers of two types never meet.
    public let type: String
    /// What its creator calls it.
    public let local: String

    /// By its kind and by the name that its creator has given it.
    public init(type: String, local: String) { (self.type, self.local) = (type, local) }

    /// For people and logs.
    public var description: String { "\(type):\(local)" }

    /// Whether all bytes are the same.
    public static func == (left: Self, right: Self) -> Bool {
        ExactText.equal(left.local, right.local) && ExactText.equal(left.type, right.type)
    }

    /// All bytes.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(type))
        hasher.combine(ExactText(local))
    }
}

/// What an entity is called: by its creator, by the backend, or both.
public enum EntityIdentifier: Hashable, Sendable {
    case local(type: String, String)
    case remote(type: String, String)
    case both(type: String, local: String, remote: String)

    /// What kind of entity it is.
    public var type: String {
        switch self {
        case .local(let type, _), .remote(let type, _), .both(let type, _, _): type
        }
    }

    /// What its creator calls it.
    public var local: String? {
        switch self {
        case .local(_, let local), .both(_, let local, _): local
        case .remote: nil
        }
    }

    /// What the backend calls it.
    public var remote: String? {
        switch self {
        case .remote(_, let remote), .both(_, _, let remote): remote
        case .local: nil
        }
    }

    /// The entity as others name it that wait for the backend's name.
    public var reference: EntityReference? { local.map { EntityReference(type: type, local: $0) } }

    /// Takes over what another identifier of the same entity knows.
    ///
    /// - Throws: ``MergeConflict`` where the two contradict each other; nothing is changed then.
    public func merged(with other: EntityIdentifier) throws(MergeConflict) -> EntityIdentifier {
        guard ExactText.equal(type, other.type) else { throw .differentTypes(type, other.type) }
        if let mine = local, let theirs = other.local, !ExactText.equal(mine, theirs) {
            throw .differentLocals(type, mine, theirs)
        }
        if let mine = remote, let theirs = other.remote, !ExactText.equal(mine, theirs) {
            throw .differentRemotes(type, mine, theirs)
        }
        switch (local ?? other.local, remote ?? other.remote) {
        case (let local?, let remote?): return .both(type: type, local: local, remote: remote)
        case (let local?, nil): return .local(type: type, local)
        case (nil, let remote?): return .remote(type: type, remote)
        case (nil, nil): return self
        }
    }
}

/// Two identifiers that cannot be those of one entity.
public enum MergeConflict: Error, Equatable, Sendable, CustomStringConvertible {
    case differentTypes(String, String)
    case differentLocals(String, String, String)
    case differentRemotes(String, String, String)
    /// A remote identifier that is empty or too long, has control characters, or would be read as a step upwards in a path (RFC 3986
    /// section 5.2.4).
    case unusableRemote(String)

    /// For people and logs.
    public var description: String {
        switch self {
        case .differentTypes(let one, let other): "An entity of type \(one) is not one of type \(other)."
        case .differentLocals(let type, let one, let other):
            "One entity of type \(type) cannot have two local identifiers, \(one) and \(other)."
        case .differentRemotes(let type, let one, let other):
            "One entity of type \(type) cannot have two remote identifiers, \(one) and \(other)."
        case .unusableRemote(let type):
            "The remote identifier of an entity of type \(type) cannot be written into a request."
        }
    }
}
