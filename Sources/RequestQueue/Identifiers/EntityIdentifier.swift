/// Names an entity by its local identifier, before the backend has assigned one.
///
/// References are compared byte by byte, as in the store: two spellings of a letter in Unicode make two names.
public struct EntityReference: Hashable, Sendable, CustomStringConvertible {
    /// The type of entity, such as `message`. Each type has local identifiers of its own.
    public let type: String
    /// The identifier that its creator assigned.
    public let local: String

    /// A reference from a type and a local identifier.
    public init(type: String, local: String) { (self.type, self.local) = (type, local) }

    /// For people and logs.
    public var description: String { "\(type):\(local)" }

    /// Whether all bytes are the same.
    public static func == (left: Self, right: Self) -> Bool {
        ExactText.equal(left.local, right.local) && ExactText.equal(left.type, right.type)
    }

    /// Hashes all bytes.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(type))
        hasher.combine(ExactText(local))
    }
}

/// The identifiers of an entity: the local one, the remote one, or both.
public enum EntityIdentifier: Hashable, Sendable {
    case local(type: String, String)
    case remote(type: String, String)
    case both(type: String, local: String, remote: String)

    /// The type of entity.
    public var type: String {
        switch self {
        case .local(let type, _), .remote(let type, _), .both(let type, _, _): type
        }
    }

    /// The identifier that its creator assigned.
    public var local: String? {
        switch self {
        case .local(_, let local), .both(_, let local, _): local
        case .remote: nil
        }
    }

    /// The identifier that the backend assigned.
    public var remote: String? {
        switch self {
        case .remote(_, let remote), .both(_, _, let remote): remote
        case .local: nil
        }
    }

    /// The reference that other requests use; nil without a local identifier.
    public var reference: EntityReference? { local.map { EntityReference(type: type, local: $0) } }

    /// Combines two identifiers of the same entity.
    ///
    /// - Throws: ``MergeConflict`` if they contradict each other.
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

/// Why identifiers cannot be those of one entity.
public enum MergeConflict: Error, Equatable, Sendable, CustomStringConvertible {
    case differentTypes(String, String)
    case differentLocals(String, String, String)
    case differentRemotes(String, String, String)
    /// The remote identifier is empty or too long, has control characters, or is a dot segment of a path (RFC 3986
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
