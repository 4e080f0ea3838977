/// What the backend calls the entities of each tenant. Entries are stored with the change that taught them, so that a
/// request which is appended later, or after a restart, is resolved as well.
public struct IdentifierMap: Sendable {
    private struct Key: Hashable {
        let tenant: ExactText
        let reference: EntityReference

        init(tenant: String, reference: EntityReference) {
            (self.tenant, self.reference) = (ExactText(tenant), reference)
        }
    }

    /// Bytes of an identifier that a backend may give.
    static let longestRemote = 1024

    private var remotes: [Key: String] = [:]

    /// Of entities of which nothing is known.
    public init() {}

    /// How many entities are known by both names.
    public var count: Int { remotes.count }

    /// What the backend calls an entity.
    public subscript(tenant: String, reference: EntityReference) -> String? {
        remotes[Key(tenant: tenant, reference: reference)]
    }

    /// Looks at identifiers that are to be learnt together.
    ///
    /// - Throws: ``MergeConflict`` where one of them contradicts what is known, or another one.
    func check(_ identifiers: [EntityIdentifier], tenant: String) throws(MergeConflict) {
        var together = IdentifierMap()
        for identifier in identifiers {
            _ = try together.merge(identifier, tenant: tenant)
            guard let reference = identifier.reference, let remote = identifier.remote else { continue }
            if let known = self[tenant, reference], !ExactText.equal(known, remote) {
                throw .differentRemotes(reference.type, known, remote)
            }
        }
    }

    /// Learns an identifier that is known by both names.
    ///
    /// - Returns: the mapping if it is new.
    /// - Throws: ``MergeConflict`` where the entity has another remote identifier already.
    public mutating func merge(_ identifier: EntityIdentifier, tenant: String) throws(MergeConflict)
        -> IdentifierMapping?
    {
        guard let reference = identifier.reference, let remote = identifier.remote else { return nil }
        guard !["", ".", ".."].contains(remote), remote.utf8.count <= Self.longestRemote,
            RequestFlaw.isFieldValue(remote)
        else {
            throw .unusableRemote(reference.type)
        }
        let key = Key(tenant: tenant, reference: reference)
        if let known = remotes[key] {
            guard ExactText.equal(known, remote) else { throw .differentRemotes(reference.type, known, remote) }
            return nil
        }
        remotes[key] = remote
        return IdentifierMapping(tenant: tenant, reference: reference, remote: remote)
    }

    mutating func forget(_ mapping: IdentifierMapping) {
        remotes[Key(tenant: mapping.tenant, reference: mapping.reference)] = nil
    }
}

/// One entry of the map, as it is stored.
public struct IdentifierMapping: Hashable, Sendable {
    /// Whose entity it is.
    public let tenant: String
    /// The entity.
    public let reference: EntityReference
    /// What the backend calls it.
    public let remote: String

    /// As it is learnt, or read from a store.
    public init(tenant: String, reference: EntityReference, remote: String) {
        (self.tenant, self.reference, self.remote) = (tenant, reference, remote)
    }
}
