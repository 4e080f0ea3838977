import Foundation
import TestThreads
import Testing

/// The package as apps depend on it: its manifest, and what SwiftPM resolves for an app that links one product.
@Suite(.blocking) struct ProductTests {
    private static let manifest = try? String(
        contentsOf: TidyTests.root.appending(path: "Package.swift"), encoding: .utf8)
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil

    // MARK: Manifest

    /// An app that depends on one of our packages with another version could not depend on Pawl otherwise.
    @Test func everyDependencyIsARange() throws {
        let manifest = try #require(Self.manifest)
        let dependencies = manifest.split(separator: "\n").filter { $0.contains(".package(") }
        #expect(dependencies.count > 10)
        for line in dependencies { #expect(line.contains(", from: \""), "\(line)") }
        for word in ["exact:", "unsafeFlags", "branch:", "revision:", "path: \"../"] {
            #expect(!manifest.contains(word), "the manifest has \(word)")
        }
    }

    @Test func theReadmeNamesTheTestedVersions() throws {
        let manifest = try #require(Self.manifest)
        let readme = try String(contentsOf: TidyTests.root.appending(path: "README.md"), encoding: .utf8)
        let versions = manifest.matches(of: /\.package\(url: "[^"]*\/([A-Za-z0-9.-]+?)(?:\.git)?", from: "([0-9.]+)"/)
            .map { "\($0.1) \($0.2)" }
        #expect(versions.count > 10)
        let section = try #require(readme.split(separator: "## ").first { $0.hasPrefix("Libraries for apps") })
            .replacing("\n", with: " ")
        for version in versions { #expect(section.contains(version), "the section does not name \(version)") }
        let tested = section.matches(of: /[A-Za-z][A-Za-z0-9.-]+ [0-9]+\.[0-9]+\.[0-9]+/).map { String($0.0) }
        #expect(Set(tested) == Set(versions), "the section names versions that the manifest does not have")
    }

    /// The lowest versions that have `Mutex`.
    @Test func thePlatformsAreThoseOfMutex() throws {
        struct Dump: Decodable {
            struct Platform: Decodable, Hashable { var platformName, version: String }
            var platforms: [Platform]
        }
        let scratch = try Folder()
        defer { scratch.remove() }
        let text = try scratch.output([
            "swift", "package", "--package-path", TidyTests.root.path, "--scratch-path", scratch.path("build"),
            "dump-package",
        ])
        let platforms = try JSONDecoder().decode(Dump.self, from: Data(text.utf8)).platforms
        let expected = ["macos": "15.0", "ios": "18.0", "tvos": "18.0", "watchos": "11.0", "visionos": "2.0"]
        #expect(Dictionary(uniqueKeysWithValues: platforms.map { ($0.platformName, $0.version) }) == expected)
    }

    @Test func onlyOneFolderKnowsTheCLibraries() {
        let folder = "Sources/DoubleRatchet/Primitives/CLibraries/"
        // The key of a history under the trait, in one part of a file: swift-crypto has no Argon2id.
        let passwords = "Sources/PawlMessenger/PasswordKey.swift"
        var users = 0
        for file in TidyTests.files("Sources") {
            let isUser = TidyTests.imports(file.text)
                .contains { ["CLibcrypto", "CSodium"].contains($0) }
            if isUser { users += 1 }
            #expect(!isUser || file.name.hasPrefix(folder) || file.name == passwords, "\(file.name) uses a C library")
            if file.name.hasPrefix(folder) {
                #expect(file.text.hasPrefix("#if CLibraries\n"), "\(file.name) is compiled without the trait")
            }
        }
        #expect(users >= 4)
    }

    /// Without its trait, which no other one enables, the package builds where GStreamer is not installed.
    @Test func onlyTheTraitReachesGStreamer() throws {
        let lines = try #require(Self.manifest).split(separator: "\n")
        let users = lines.filter { $0.contains(#""CGStreamer""#) && !$0.contains("pkgConfig:") }
        #expect(users.count == 1)
        for line in users + lines.filter({ $0.contains("PAWL_WEBRTC") || $0.contains("gstsdp") }) {
            #expect(line.contains(#".when(traits: ["WebRTC"])"#), "\(line)")
        }
        #expect(!lines.contains { $0.contains("enabledTraits") && $0.contains(#""WebRTC"]"#) })
        let importers = TidyTests.files("Sources").filter { TidyTests.imports($0.text).contains("CWebRTC") }
        #expect(importers.count == 1)
        for file in importers { #expect(file.text.hasPrefix("#if WebRTC\n"), "\(file.name)") }
    }

    // MARK: Apps

    /// An app that links products of a tagged repository.
    struct App: Sendable, CustomTestStringConvertible {
        var products: [String]
        /// The traits that the app turns on, in place of the default ones.
        var traits: [String]
        /// Everything that SwiftPM resolves, Pawl among it.
        var resolved: [String]
        var imports: [String]
        /// Without its imports, which `FloorTests` would take for those of this file.
        var program: String
        var prints: String

        var testDescription: String { products.joined(separator: ", ") }
    }

    static let apps: [App] = [
        App(
            products: ["DoubleRatchet"], traits: [],
            resolved: ["pawl", "swift-asn1", "swift-collections", "swift-crypto"],
            imports: ["DoubleRatchet"],
            program: """
                func verifies(_ message: [UInt8]) -> Bool {
                    var random = SystemRandomSource()
                    let identity = IdentityKeyPair(random: &random)
                    let signature = identity.sign(message.span, context: "app")
                    return identity.publicKey.isValidSignature(signature.span, of: message.span, context: "app")
                }
                print(verifies([1, 2, 3]))
                """, prints: "true"),
        App(
            products: ["Devices", "DoubleRatchet"], traits: [],
            resolved: ["pawl", "swift-asn1", "swift-collections", "swift-crypto"],
            imports: ["Devices", "DoubleRatchet", "Envelope"],
            program: """
                func isReadBack() throws -> Bool {
                    var random = SystemRandomSource()
                    let identity = IdentityKeyPair(random: &random)
                    let device = ListedDevice(id: DeviceID(1), identity: identity.publicKey)
                    let list = DeviceList(of: device, identity: identity)
                    return try DeviceList(list.bytes) == list
                }
                print(try isReadBack())
                """, prints: "true"),
        App(
            products: ["RequestQueue", "RequestQueueClient", "RequestQueueURLSession"], traits: ["SQLite"],
            resolved: ["grdb.swift", "pawl", "swift-asn1", "swift-collections", "swift-crypto"],
            imports: ["RequestQueue", "RequestQueueClient", "RequestQueueURLSession", "SQLiteQueue"],
            program: """
                let folder = CommandLine.arguments[1]
                let store = try SQLiteQueueStore(path: folder + "/queue.sqlite")
                let network: any NetworkClient = URLSessionNetworkClient()
                print(type(of: store) == SQLiteQueueStore.self && network is URLSessionNetworkClient)
                """, prints: "true"),
        App(
            products: ["PawlMessenger"], traits: ["SQLite"],
            resolved: ["grdb.swift", "pawl", "swift-asn1", "swift-collections", "swift-crypto"],
            imports: ["PawlMessenger"],
            program: """
                print(Username("Alice").raw)
                """, prints: "alice"),
    ]

    /// A repository of the files that git knows here, committed and tagged, as an app would find it.
    private static func tag(_ folder: Folder) throws {
        let root = TidyTests.root.path
        let list = try folder.output([
            "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard",
        ])
        for name in list.split(separator: "\0").map(String.init) {
            let source = TidyTests.root.appending(path: name)
            guard FileManager.default.fileExists(atPath: source.path) else { continue }
            let target = URL(filePath: folder.path("pawl/\(name)"))
            try FileManager.default.createDirectory(
                at: target.deletingLastPathComponent(), withIntermediateDirectories: true)
            try FileManager.default.copyItem(at: source, to: target)
        }
        let git = ["git", "-C", folder.path("pawl"), "-c", "user.name=Test", "-c", "user.email=test@localhost"]
        _ = try folder.output(["git", "init", "--quiet", folder.path("pawl")])
        _ = try folder.output(git + ["add", "--all"])
        _ = try folder.output(git + ["commit", "--quiet", "--message", "A version"])
        _ = try folder.output(git + ["tag", "1.2.3"])
    }

    private static func write(_ app: App, _ folder: Folder) throws {
        let products = app.products.map { ".product(name: \"\($0)\", package: \"pawl\")" }.joined(separator: ", ")
        let traits = app.traits.map { "\"\($0)\"" }.joined(separator: ", ")
        let manifest = """
            // swift-tools-version: 6.2
            import PackageDescription

            let package = Package(
                name: "Toy", platforms: [.macOS(.v15)],
                dependencies: [.package(url: "file://\(folder.path("pawl"))", from: "1.0.0", traits: [\(traits)])],
                targets: [.executableTarget(name: "Toy", dependencies: [\(products)])])
            """
        try FileManager.default.createDirectory(
            atPath: folder.path("app/Sources/Toy"), withIntermediateDirectories: true)
        try manifest.write(toFile: folder.path("app/Package.swift"), atomically: true, encoding: .utf8)
        let program = app.imports.map { "import \($0)\n" }.joined() + app.program
        try program.write(toFile: folder.path("app/Sources/Toy/main.swift"), atomically: true, encoding: .utf8)
    }

    /// Caches of their own: repositories of temporary folders would stay in the user's.
    private static func swift(_ command: [String], _ folder: Folder, _ rest: [String] = []) -> [String] {
        ["swift"] + command + ["--package-path", folder.path("app"), "--cache-path", folder.path("cache")] + rest
    }

    /// One after the other, with one repository and one cache.
    @Test func anAppResolvesWhatItsTraitsNeed() throws {
        struct Package: Decodable {
            var identity: String
            var dependencies: [Package]
            var all: [String] { [identity] + dependencies.flatMap(\.all) }
        }
        let folder = try Folder()
        defer { folder.remove() }
        try Self.tag(folder)
        for app in Self.apps {
            try Self.write(app, folder)
            let text = try folder.output(
                Self.swift(["package"], folder, ["show-dependencies", "--format", "json"]))
            let tree = try JSONDecoder().decode(Package.self, from: Data(text.utf8))
            #expect(Set(tree.dependencies.flatMap(\.all)).sorted() == app.resolved, "\(app.testDescription)")
            folder.remove("app")
        }
    }

    /// Builds BoringSSL, which takes minutes: with `--long` only.
    @Test(.enabled(if: isLong), arguments: apps) func anAppBuildsAndRuns(_ app: App) throws {
        let folder = try Folder()
        defer { folder.remove() }
        try Self.tag(folder)
        try Self.write(app, folder)
        let output = try folder.output(Self.swift(["run"], folder, ["Toy", folder.path("")]))
        #expect(output.split(separator: "\n").last.map(String.init) == app.prints)
    }
}

/// A temporary folder in which programs run.
private struct Folder {
    struct Failure: Error { var text: String }

    private let url: URL

    init() throws {
        url = FileManager.default.temporaryDirectory.appending(path: "pawl-product-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    func path(_ name: String) -> String { url.appending(path: name).path }

    func remove() { try? FileManager.default.removeItem(at: url) }

    func remove(_ name: String) { try? FileManager.default.removeItem(atPath: path(name)) }

    /// What a command prints to its standard output; its errors go into a file of the folder.
    func output(_ command: [String]) throws -> String {
        let (process, pipe) = (Process(), Pipe())
        let errors = url.appending(path: UUID().uuidString)
        try Data().write(to: errors)
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = command
        process.standardOutput = pipe
        process.standardError = try FileHandle(forWritingTo: errors)
        try process.run()
        let data = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            let text = (try? String(contentsOf: errors, encoding: .utf8)) ?? ""
            throw Failure(text: "\(command.joined(separator: " ")): \(text.suffix(2000))")
        }
        return String(decoding: data, as: UTF8.self)
    }
}
