extension JSONPath {
    /// The names that it follows, where it follows nothing but members: then something can be put where it leads, even
    /// where there is nothing yet. Empty for `$`.
    package var memberNames: [String]? {
        var names: [String] = []
        for step in steps {
            guard case .member(let name) = step else { return nil }
            names.append(String(decoding: name.bytes, as: UTF8.self))
        }
        return names
    }

    /// The name of the member that it begins with; nothing where it begins otherwise.
    package var firstMember: String? {
        guard case .member(let name)? = steps.first else { return nil }
        return String(decoding: name.bytes, as: UTF8.self)
    }

    /// The path to one member, written so that it is read as such whatever the name is.
    package static func text(ofMember name: String) -> String {
        if let path = try? JSONPath(name), path.memberNames == [name] { return name }
        return "\"" + name.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }
}
