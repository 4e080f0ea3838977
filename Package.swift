// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

func library(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .target(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: settings)
}

/// A product of another package. With a trait, apps that turn the trait off do not resolve the package.
func product(_ name: String, _ package: String, trait: String? = nil) -> Target.Dependency {
    .product(name: name, package: package, condition: trait.flatMap { .when(traits: [$0]) })
}

let nioCore = product("NIOCore", "swift-nio", trait: "NIO")
let nioPosix = product("NIOPosix", "swift-nio", trait: "NIO")
let nioEmbedded = product("NIOEmbedded", "swift-nio", trait: "NIO")
let nioHTTP1 = product("NIOHTTP1", "swift-nio", trait: "NIO")
let nioWebSocket = product("NIOWebSocket", "swift-nio", trait: "NIO")
let nioHTTP2 = product("NIOHTTP2", "swift-nio-http2", trait: "NIO")
let nioHPACK = product("NIOHPACK", "swift-nio-http2", trait: "NIO")
let nioTLS = product("NIOTLS", "swift-nio", trait: "NIO")
let nioSSL = product("NIOSSL", "swift-nio-ssl", trait: "NIO")
let crypto = product("Crypto", "swift-crypto")
let cryptoExtras = product("CryptoExtras", "swift-crypto")
let deque = product("DequeModule", "swift-collections")
let heap = product("HeapModule", "swift-collections")
let logging = product("Logging", "swift-log", trait: "Program")
let lifecycle = product("ServiceLifecycle", "swift-service-lifecycle", trait: "Program")
let unixSignals = product("UnixSignals", "swift-service-lifecycle", trait: "Program")
let argumentParser = product("ArgumentParser", "swift-argument-parser", trait: "Program")
let configuration = product("Configuration", "swift-configuration", trait: "Program")
let yams = product("Yams", "Yams", trait: "Program")
let grdbSQLite = product("GRDBSQLite", "GRDB.swift", trait: "SQLite")
let asyncHTTPClient = product("AsyncHTTPClient", "async-http-client", trait: "HTTPClient")
let grdb = product("GRDB", "GRDB.swift", trait: "SQLite")

let package = Package(
    name: "pawl",
    // `Mutex` needs these versions.
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        .executable(name: "pawl", targets: ["pawl"]),
        .library(name: "Devices", targets: ["Devices", "Envelope", "Protection"]),
        .library(name: "DoubleRatchet", targets: ["DoubleRatchet"]),
        .library(name: "RequestQueue", targets: ["RequestQueue", "SQLiteQueue"]),
        .library(name: "RequestQueueClient", targets: ["RequestQueueClient"]),
        .library(name: "RequestQueueURLSession", targets: ["RequestQueueURLSession"]),
        .library(name: "RequestQueueAsyncHTTP", targets: ["RequestQueueAsyncHTTP"]),
        .library(name: "TransportsClient", targets: ["TransportsClient"]),
        .library(name: "TransportsService", targets: ["TransportsService"]),
        .library(name: "PawlMessenger", targets: ["PawlMessenger"]),
        .library(name: "PawlMessengerIRC", targets: ["PawlMessengerIRC"]),
        .library(name: "PawlMessengerWebSocket", targets: ["PawlMessengerWebSocket"]),
        .library(name: "PawlPeerToPeerTCP", targets: ["PawlPeerToPeerTCP"]),
        .library(name: "PawlPeerToPeerWebRTC", targets: ["PawlPeerToPeerWebRTC"]),
        .library(name: "QRCode", targets: ["QRCode"]),
    ],
    traits: [
        .default(enabledTraits: ["CLibraries", "Program"]),
        .trait(name: "CLibraries", description: "DoubleRatchet uses libcrypto and libsodium, which are faster"),
        .trait(name: "HTTPClient", description: "RequestQueueAsyncHTTP", enabledTraits: ["NIO"]),
        .trait(name: "NIO", description: "Servers and clients on SwiftNIO"),
        .trait(
            name: "Program", description: "The program pawl and all else",
            enabledTraits: ["HTTPClient", "NIO", "SQLite"]),
        .trait(name: "SQLite", description: "SQLiteQueue, and the store of the program and of PawlMessenger"),
        .trait(name: "WebRTC", description: "PawlPeerToPeerWebRTC, on GStreamer", enabledTraits: ["SQLite"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-http2.git", from: "1.46.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0", traits: []),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        // Floor 0: protocols. Bytes in, values out.
        .systemLibrary(
            name: "CLibcrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
        .systemLibrary(
            name: "CSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"]), .brew(["libsodium"])]),
        .systemLibrary(
            name: "CJemalloc", pkgConfig: "jemalloc", providers: [.apt(["libjemalloc-dev"]), .brew(["jemalloc"])]),
        .systemLibrary(name: "CLibpq", pkgConfig: "libpq", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
        .systemLibrary(
            name: "CQRencode", pkgConfig: "libqrencode", providers: [.apt(["libqrencode-dev"]), .brew(["qrencode"])]),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
        library(
            "DoubleRatchet",
            [
                .target(name: "CLibcrypto", condition: .when(traits: ["CLibraries"])),
                .target(name: "CSodium", condition: .when(traits: ["CLibraries"])), crypto, cryptoExtras,
            ]),
        library("OMEMO", ["DoubleRatchet"]),
        library("Envelope", []),
        library("HTTPCodec", ["Envelope", crypto, nioCore]),
        library("IRCCodec", [nioCore]),
        library("JSONCodec", [nioCore]),
        library("QRCode", ["CQRencode"]),
        library("PeerConnection", ["DoubleRatchet"]),
        // The interface between transports in Swift and in other languages: a header, and the check of its layout.
        .target(name: "CTransports"),
        library("TransportCodec", [nioCore]),
        // Floor 1: domain. No socket, thread, file, clock, logger or random source, here and on floor 2.
        library("RequestQueue", [deque, heap], exclude: ["QUEUE.md"]),
        library("Protection", ["Envelope", "RequestQueue"]),
        library("StorePort", ["Envelope", "Protection", "RequestQueue", crypto]),
        library(
            "Devices",
            ["DoubleRatchet", "Envelope", "Protection", "RequestQueue", "StorePort", crypto]),
        library("Reports", ["Devices", "Envelope", "Protection", "StorePort"]),
        library("CommitLoop", ["Protection", "RequestQueue", "StorePort"]),
        library("Ownership", ["StorePort"], exclude: ["OWNERSHIP.md"]),
        // Floor 2: machines. What they share is the vault and the directory; no chat protocol imports another.
        library("CallSignalling", ["Envelope", "Protection", "RequestQueue"]),
        library("Outbox", ["Devices", "Protection", "RequestQueue", "StorePort"]),
        library(
            "DeviceDirectory",
            ["CommitLoop", "Devices", "DoubleRatchet", "Envelope", "Protection", "StorePort", crypto]),
        library(
            "Vault",
            [
                "CommitLoop", "Devices", "DoubleRatchet", "Envelope", "Protection", "StorePort", crypto,
            ]),
        library(
            "DeviceSessions",
            ["CommitLoop", "Devices", "DoubleRatchet", "Envelope", "Protection", "StorePort", "Vault"]),
        library(
            "Messenger",
            [
                "CommitLoop", "DeviceSessions", "Devices", "DoubleRatchet", "Envelope", "Outbox", "Protection",
                "RequestQueue", "StorePort", "Vault", crypto,
            ]),
        library(
            "IRCGateway",
            [
                "CommitLoop", "DeviceDirectory", "DeviceSessions", "Devices", "DoubleRatchet", "Envelope", "IRCCodec",
                "Outbox",
                "Protection", "Reports", "RequestQueue",
                "StorePort", "Vault", deque, nioCore,
            ]),
        library(
            "JSONGateway",
            [
                "CallSignalling", "CommitLoop", "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "HTTPCodec",
                "JSONCodec", "Outbox", "Protection",
                "Reports", "RequestQueue", "StorePort", "Vault", crypto, deque, nioCore,
            ]),
        // Floor 3: adapters.
        library("SQLiteKit", [grdb, grdbSQLite]),
        library("SQLiteQueue", ["RequestQueue", "SQLiteKit", grdb]),
        library("StoreBase", ["Envelope", "Protection", "SQLiteKit", "StorePort", crypto]),
        library(
            "SQLiteStore",
            [
                "DeviceDirectory", "Envelope", "Protection", "RequestQueue", "SQLiteKit", "SQLiteQueue", "StoreBase",
                "StorePort", crypto, grdb, grdbSQLite,
            ]),
        library(
            "PostgresStore",
            [
                "CLibpq", "DeviceDirectory", "Envelope", "Ownership", "Protection", "RequestQueue", "SQLiteKit",
                "SQLiteQueue", "StoreBase", "StorePort", crypto,
            ], exclude: ["POSTGRES.md"]),
        library("NIOSupport", ["CommitLoop", "Protection", "StorePort", crypto, deque, nioCore, nioPosix, nioSSL]),
        library(
            "IRCServer",
            [
                "IRCCodec", "IRCGateway", "NIOSupport", "Protection", "Reports", "Vault", deque, nioCore, nioHTTP1,
                nioPosix, nioSSL, nioTLS, nioWebSocket,
            ]),
        library(
            "HTTPServer",
            [
                "CZlib", "CommitLoop", "DoubleRatchet", "Envelope", "HTTPCodec", "JSONGateway", "NIOSupport", "Outbox",
                "Protection",
                "Reports", "RequestQueue", "TransportsService", "Vault", deque, nioCore, nioHPACK, nioHTTP2, nioPosix,
                nioSSL, nioTLS,
            ]),
        library("RequestQueueClient", ["RequestQueue"]),
        // Apart, because outside of Apple's systems it needs FoundationNetworking, and with it libcurl.
        library("RequestQueueURLSession", ["RequestQueue", "RequestQueueClient"]),
        library(
            "RequestQueueAsyncHTTP",
            ["RequestQueue", "RequestQueueClient", asyncHTTPClient, nioCore, nioHTTP1, nioPosix, nioSSL]),
        library("TransportsCore", ["CTransports", "TransportCodec", crypto, nioCore, nioWebSocket]),
        library(
            "TransportsClient",
            [
                "CTransports", "TransportCodec", "TransportsCore", nioCore, nioHTTP1, nioPosix, nioSSL, nioWebSocket,
            ]),
        library(
            "TransportsService",
            [
                "CTransports", "TransportCodec", "TransportsCore", nioCore, nioHTTP1, nioPosix, nioSSL, nioWebSocket,
            ]),
        .systemLibrary(
            name: "CGStreamer", pkgConfig: "gstreamer-webrtc-1.0",
            providers: [.apt(["libgstreamer-plugins-bad1.0-dev"]), .brew(["gstreamer"])]),
        // Without the trait it has no code.
        .target(
            name: "CWebRTC", dependencies: [.target(name: "CGStreamer", condition: .when(traits: ["WebRTC"]))],
            cSettings: [.define("PAWL_WEBRTC", .when(traits: ["WebRTC"]))],
            linkerSettings: [.linkedLibrary("gstsdp-1.0", .when(traits: ["WebRTC"]))]),
        // Floor 4: the program, and the messenger for apps.
        library(
            "PawlMessenger",
            [
                .target(name: "CSodium", condition: .when(traits: ["CLibraries"])), "CallSignalling", "CommitLoop",
                "DeviceDirectory", "DeviceSessions", "Devices", "DoubleRatchet", "Envelope", "Messenger",
                "PeerConnection", "Protection", "RequestQueue", "RequestQueueClient", "RequestQueueURLSession",
                "SQLiteStore", "StoreBase", "StorePort", "Vault", crypto, cryptoExtras,
            ], exclude: ["MESSENGER.md"]),
        library("PawlMessengerIRC", ["Envelope", "IRCCodec", "PawlMessenger", deque, nioCore, nioPosix, nioSSL]),
        library("PawlMessengerWebSocket", ["HTTPCodec", "PawlMessenger", nioCore, nioPosix, nioSSL]),
        library(
            "PawlPeerToPeerTCP",
            ["HTTPCodec", "PawlMessenger", "PawlMessengerWebSocket", "PeerConnection", nioCore, nioPosix]),
        library("PawlPeerToPeerWebRTC", ["CWebRTC", "PawlMessenger", "PeerConnection"]),
        library("PawlConfiguration", ["Envelope", "Protection", "Reports", "RequestQueue", configuration, yams]),
        library(
            "MappingFile",
            ["Envelope", "HTTPCodec", "JSONCodec", "JSONGateway", "PawlConfiguration", "Protection", nioCore]),
        .executableTarget(
            name: "pawl",
            dependencies: [
                .target(name: "CJemalloc", condition: .when(platforms: [.linux])), "CommitLoop",
                "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "HTTPCodec", "HTTPServer", "IRCCodec",
                "IRCGateway", "IRCServer", "JSONCodec", "JSONGateway", "MappingFile", "NIOSupport", "Outbox",
                "PawlConfiguration", "PostgresStore", "Protection", "QRCode", "Reports", "RequestQueue",
                "RequestQueueAsyncHTTP", "RequestQueueClient", "SQLiteKit", "SQLiteQueue", "SQLiteStore", "StoreBase",
                "StorePort", "TransportsClient", "TransportsService", "Vault", argumentParser, asyncHTTPClient,
                logging, nioCore, nioHTTP1, nioPosix, nioSSL, lifecycle, unixSignals,
            ],
            swiftSettings: settings),
        // What tests and benchmarks use.
        .target(
            name: "TestKit", dependencies: ["DoubleRatchet"], path: "Tests/TestKit", swiftSettings: settings),
        .target(
            name: "PeerKit", dependencies: ["TestKit"], path: "Tests/PeerKit", exclude: ["Matrix/Peers"],
            swiftSettings: settings),
        .target(name: "TestThreads", path: "Tests/TestThreads", swiftSettings: settings),
        .target(
            name: "TestNetwork", dependencies: [nioCore, nioPosix], path: "Tests/TestNetwork", swiftSettings: settings),
        .target(
            name: "CapableApp", dependencies: ["DoubleRatchet"], path: "Tests/CapableApp", swiftSettings: settings),
        .executableTarget(
            name: "ChatBackend",
            dependencies: ["PeerKit", argumentParser, nioCore, nioHTTP1, nioPosix, nioWebSocket],
            path: "Tests/ChatBackend", swiftSettings: settings),
        .target(
            name: "StoreConformance",
            dependencies: [
                "CommitLoop", "Devices", "DoubleRatchet", "Envelope", "JSONGateway", "Protection", "RequestQueue",
                "StorePort", "Vault",
            ],
            path: "Tests/StoreConformance", swiftSettings: settings),
        .target(
            name: "QueueConformance", dependencies: ["RequestQueue", "TestKit", grdbSQLite],
            path: "Tests/QueueConformance", swiftSettings: settings),
        .executableTarget(
            name: "QueueVictim",
            dependencies: [
                "RequestQueue", "RequestQueueAsyncHTTP", "RequestQueueClient", "RequestQueueURLSession", "SQLiteQueue",
                asyncHTTPClient,
            ],
            path: "Tests/QueueVictim", swiftSettings: settings),
        .target(
            name: "MessengerSpool", dependencies: ["PawlMessenger"], path: "Tests/MessengerSpool",
            swiftSettings: settings),
        .executableTarget(
            name: "MessengerVictim", dependencies: ["MessengerSpool", "PawlMessenger"], path: "Tests/MessengerVictim",
            swiftSettings: settings),
        .executableTarget(
            name: "CallVictim", dependencies: ["MessengerSpool", "PawlMessenger", "PawlMessengerIRC"],
            path: "Tests/CallVictim",
            swiftSettings: settings),
        // The example of an app, and the people of `deploy/quickstart --chat app`.
        .executableTarget(
            name: "ChatClient", dependencies: ["PawlMessenger", argumentParser], path: "deploy/plays/ChatClient",
            swiftSettings: settings),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "CommitLoop", "Devices", "DoubleRatchet", "Envelope", "JSONGateway", "OMEMO",
                "PawlMessenger", "PawlPeerToPeerTCP", "PostgresStore", "Protection",
                "RequestQueue", "RequestQueueAsyncHTTP", "RequestQueueClient",
                "SQLiteQueue", "SQLiteStore", "StoreBase", "StorePort", "TransportsClient", "TransportsCore",
                "TransportsService", "Vault", argumentParser, asyncHTTPClient, grdbSQLite, nioCore, nioPosix, nioSSL,
            ],
            path: "Tests/Benchmarks", exclude: ["RESULTS.md", "QueuePeers", "RatchetPeers"], swiftSettings: settings),
        // Tests, one target a module.
        tests(
            "DoubleRatchetTests",
            ["DoubleRatchet", "OMEMO", "PeerKit", "TestKit", "TestThreads", crypto, cryptoExtras],
            exclude: ["Peers", "Portable", "Fuzz/compile", "Fuzz/Valgrind"]),
        tests("IRCCodecTests", ["IRCCodec", "TestKit", nioCore]),
        tests("JSONCodecTests", ["JSONCodec", "PeerKit", "TestKit", "TestThreads", nioCore], exclude: ["Peers"]),
        tests("EnvelopeTests", ["Envelope"]),
        tests("CallSignallingTests", ["CallSignalling", "Envelope", "Protection", "TestKit"]),
        tests(
            "MessengerTests",
            [
                "CommitLoop", "DeviceSessions", "Devices", "DoubleRatchet", "Envelope", "Messenger", "Protection",
                "RequestQueue", "StorePort", "TestKit", "Vault",
            ]),
        tests(
            "PawlMessengerTests",
            [
                "CallSignalling", "CallVictim", "ChatBackend", "ChatClient", "Devices", "DoubleRatchet", "Envelope",
                "HTTPCodec", "Messenger", "MessengerVictim", "PawlMessenger", "PawlMessengerWebSocket",
                "PawlPeerToPeerTCP", "PeerKit", "RequestQueue", "RequestQueueClient", "SQLiteStore", "StoreBase",
                "StorePort", "TestKit", "TestThreads", "TransportsClient", "pawl", nioCore, nioPosix,
            ], exclude: ["Calls/Peers", "Calls/ROWS.md", "ROWS.md"]),
        tests(
            "PawlMessengerIRCTests",
            [
                "Envelope", "IRCCodec", "PawlMessenger", "PawlMessengerIRC", "PeerKit", "QRCode", "TestKit",
                "TestThreads", "pawl", nioCore, nioSSL,
            ]),
        tests(
            "PeerToPeerTests",
            [
                "ChatBackend", "DoubleRatchet", "Messenger", "PawlMessenger", "PawlPeerToPeerTCP",
                "PawlPeerToPeerWebRTC", "PeerConnection", "PeerKit", "TestKit", "TestThreads", "pawl", nioCore,
                nioPosix,
            ],
            exclude: ["Peers", "README.md"]),
        tests("QRCodeTests", ["Devices", "DoubleRatchet", "PeerKit", "QRCode", "TestKit", "TestThreads"]),
        tests("RequestQueueTests", ["IRCCodec", "RequestQueue", "TestKit"]),
        tests(
            "CommitLoopTests", ["CommitLoop", "Envelope", "Protection", "RequestQueue", "StorePort", "TestKit"]),
        tests("OwnershipTests", ["Ownership", "StorePort", "TestKit"]),
        tests(
            "RequestQueueClientTests",
            [
                "QueueVictim", "PeerKit", "RequestQueue", "RequestQueueAsyncHTTP", "RequestQueueClient",
                "RequestQueueURLSession", "SQLiteQueue", "TestKit", "TestThreads", asyncHTTPClient, crypto, nioCore,
                nioHTTP1, nioPosix, nioSSL,
            ]),
        tests("HTTPCodecTests", ["HTTPCodec", "TestKit", nioCore]),
        tests("ProtectionTests", ["Envelope", "Protection"]),
        tests("StorePortTests", ["RequestQueue", "StorePort"]),
        tests("DevicesTests", ["Devices", "DoubleRatchet", "Envelope", "Protection", "TestKit", "TestThreads"]),
        tests(
            "VaultTests",
            [
                "Devices", "DoubleRatchet", "Envelope", "Protection", "StoreConformance", "StorePort", "TestKit",
                "Vault",
            ]),
        tests(
            "IRCGatewayTests",
            [
                "CommitLoop", "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "IRCCodec", "IRCGateway",
                "Outbox", "Protection", "Reports", "RequestQueue", "StoreConformance", "StorePort", "TestKit", "Vault",
                nioCore,
            ]),
        tests(
            "JSONGatewayTests",
            [
                "CallSignalling", "CapableApp", "CommitLoop", "DeviceDirectory", "Devices", "DoubleRatchet",
                "Envelope", "HTTPCodec", "JSONCodec", "JSONGateway", "Protection", "QueueConformance", "Reports",
                "RequestQueue", "StoreConformance", "StorePort", "TestKit", "Vault", nioCore,
            ]),
        tests("PawlConfigurationTests", ["PawlConfiguration", "Protection", yams]),
        tests(
            "MappingFileTests",
            [
                "HTTPCodec", "JSONCodec", "JSONGateway", "MappingFile", "PawlConfiguration", "Protection", "TestKit",
                nioCore,
            ]),
        tests("PeerKitTests", ["ChatBackend", "PeerKit", "TestKit", "TestThreads"]),
        tests(
            "PeerTests",
            [
                "ChatBackend", "pawl", "CapableApp", "Devices", "PeerKit", "Protection", "Reports", "TestKit",
                "TestThreads",
            ],
            exclude: ["Golden"]),
        tests(
            "PawlTests",
            [
                "DeviceDirectory", "Envelope", "HTTPCodec", "HTTPServer", "IRCGateway", "JSONGateway", "NIOSupport",
                "Outbox", "PawlConfiguration", "PeerKit", "Protection", "Reports", "RequestQueue", "RequestQueueClient",
                "SQLiteStore", "StorePort", "TestKit", "TestThreads", "TransportsClient", "TransportsService", "pawl",
                argumentParser, logging, nioCore,
                nioPosix,
            ]),
        tests("TidyTests", ["TestThreads"]),
        tests(
            "WireTests",
            [
                "CallSignalling", "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "HTTPCodec", "IRCCodec",
                "IRCGateway", "IRCServer", "JSONCodec", "JSONGateway", "Messenger", "NIOSupport", "PawlMessenger",
                "PeerConnection", "PeerKit", "Protection", "RequestQueue", "StorePort", "TestKit", "TestThreads",
                "TransportCodec", "TransportsCore", "Vault", crypto, nioCore,
            ], exclude: ["Peers"]),
        .target(name: "CMyTransport", dependencies: ["CTransports"], path: "Tests/CMyTransport"),
        tests(
            "TransportsTests",
            [
                "CMyTransport", "CTransports", "PeerKit", "TestKit", "TestNetwork", "TestThreads", "TransportCodec",
                "TransportsClient",
                "TransportsCore",
                "TransportsService", nioCore, nioPosix, nioSSL,
            ], exclude: ["README.md"]),
        tests(
            "IRCServerTests",
            [
                "DeviceDirectory", "Devices", "IRCGateway", "IRCServer", "NIOSupport", "PeerKit", "Protection",
                "TestKit", "TestThreads", nioCore, nioPosix,
            ]),
        tests(
            "HTTPServerTests",
            [
                "CZlib", "Devices", "DoubleRatchet", "Envelope", "HTTPCodec", "HTTPServer", "JSONCodec", "JSONGateway",
                "NIOSupport", "PeerKit", "Protection", "Reports", "RequestQueue", "StorePort", "TestKit",
                "TestNetwork", "TestThreads", "Vault", nioCore, nioHPACK, nioPosix, nioSSL,
            ]),
        tests(
            "NIOSupportTests",
            [
                "CommitLoop", "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "IRCGateway", "NIOSupport",
                "PeerKit", "Protection", "RequestQueue", "SQLiteStore", "StoreConformance", "StoreBase", "StorePort",
                "TestKit", "Vault", nioCore, nioEmbedded, nioPosix,
            ]),
        tests(
            "SQLiteQueueTests",
            [
                "QueueVictim", "PeerKit", "QueueConformance", "RequestQueue", "SQLiteKit", "SQLiteQueue", "TestKit",
                "TestThreads", grdb, grdbSQLite,
            ]),
        tests(
            "PostgresStoreTests",
            [
                "Envelope", "Ownership", "PeerKit", "PostgresStore", "Protection", "QueueConformance", "RequestQueue",
                "SQLiteStore", "StoreConformance", "StoreBase", "StorePort", "TestKit", "TestThreads", "pawl",
            ]),
        tests(
            "SQLiteStoreTests",
            [
                "CommitLoop",
                "DeviceDirectory", "Devices", "DoubleRatchet", "Envelope", "JSONGateway", "Protection",
                "QueueConformance",
                "RequestQueue", "SQLiteKit", "SQLiteQueue", "SQLiteStore", "StoreConformance", "StoreBase", "StorePort",
                "Vault", crypto, grdb, grdbSQLite,
            ]),
    ]
)
